"""One workload under other methods or augmentations, relative to plain FedAvg."""

from collections.abc import Mapping
from typing import Any

from experiments.bench.jax_peers import Ours
from experiments.bench.turns import take_turns
from experiments.bench.workloads import Workload, make_problem

# Every method trains on what is left, so that their rounds compare.
_SERVER_DATA = {"server_data.labelled": 0.02, "server_data.unlabelled": 0.02}


def relative(
    workload: Workload, variants: Mapping[str, Mapping[str, Any]], turns: int
) -> list[dict[str, Any]]:
    """Measures variants of a workload, each in turns with the workload itself.

    Args:
        workload: what is trained, with FedAvg.
        variants: changes of the configuration, by name.
        turns: rounds measured of each.

    Returns:
        One row per variant: its time per sample relative to FedAvg's, the memory of its
        compiled round beside FedAvg's, and its compilation time. A method of several phases is
        measured in its first.
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
