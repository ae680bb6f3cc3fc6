"""Measures a workload with other methods or augmentations, relative to plain FedAvg."""

from collections.abc import Mapping
from typing import Any

from experiments.bench.jax_peers import Ours
from experiments.bench.turns import take_turns
from experiments.bench.workloads import Workload, make_problem

# The server holds data for every method, so that all rounds have the same client data.
_SERVER_DATA = {"server_data.labelled": 0.02, "server_data.unlabelled": 0.02}


def relative(
    workload: Workload, variants: Mapping[str, Mapping[str, Any]], turns: int
) -> list[dict[str, Any]]:
    """Measures variants of a workload, each in turns with the workload itself.

    Args:
        workload: the workload, which trains with FedAvg.
        variants: changes to the configuration, by name.
        turns: number of rounds to measure per variant.

    Returns:
        One row per variant: its time per sample relative to FedAvg's, the memory of its
        compiled round and of FedAvg's, and its compilation time. A method with several phases is
        measured in its first phase.
    """
    base = Ours(make_problem(workload, _SERVER_DATA))
    rows = []
    for name, changes in variants.items():
        variant = Ours(make_problem(workload, {**_SERVER_DATA, **changes}))
        speeds = take_turns({"fedavg": base, name: variant}, turns)
        rows.append(
            {
                "variant": name,
                "relative_time": speeds["fedavg"].median / speeds[name].median,
                "samples_per_second": speeds[name]._asdict(),
                "fedavg_samples_per_second": speeds["fedavg"]._asdict(),
                "memory_mb": variant.memory_mb,
                "fedavg_memory_mb": base.memory_mb,
                "compile_seconds": variant.compile_seconds,
            }
        )
    return rows
