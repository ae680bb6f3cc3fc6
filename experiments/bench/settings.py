"""Measures rounds by the number of clients, and by the settings of a device."""

from typing import Any

import jax
import numpy as np

from experiments.bench.jax_peers import Ours
from experiments.bench.turns import take_turns, timed
from experiments.bench.workloads import WORKLOADS, make_config, make_dataset, make_problem
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.models.conv import CONV_IMPLS
from fedjax_skew.simulation.problem import build


def scaling(turns: int) -> list[dict[str, Any]]:
    """Measures the time of a round by clients per round, and by the total number of clients."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000_000, 8)).astype(np.float32)
    labels = rng.integers(0, 10, len(x)).astype(np.int32)
    many = Dataset("random", x, labels, x[:100], labels[:100], 10)
    images = make_dataset(WORKLOADS["mlp"])
    rows = []
    for dataset, sizes in (
        (images, [(256, cohort) for cohort in (1, 4, 16, 64, 256)]),
        (many, [(clients, 50) for clients in (100, 1_000, 10_000, 100_000, 1_000_000)]),
    ):
        group = [_round_of(dataset, *size) for size in sizes]
        times = [[timed(ours)[1] for ours, _ in group] for _ in range(turns + 1)]
        median = 1000 * np.median(times[1:], axis=0)  # The first turn warms up.
        rows += [
            {"clients": size[0], "cohort": size[1], "milliseconds": float(ms), "table_mb": table}
            for size, ms, (_, table) in zip(sizes, median, group, strict=True)
        ]
    return rows


def _round_of(dataset: Dataset, clients: int, cohort: int) -> tuple[Ours, float]:
    """Returns rounds of five steps of the MLP, and the size of the index tables in MB."""
    changes = {
        "partition": "iid",
        "num_clients": clients,
        "participation": cohort / clients,
        "local_epochs": 0,
        "local_steps": 5,
    }
    config = make_config(WORKLOADS["mlp"], changes)
    problem = build(config, dataset=dataset)
    tables = jax.tree.leaves(problem.data._replace(x=None))
    return Ours(problem), sum(a.nbytes for a in tables) / 2**20


def tune(name: str, turns: int) -> dict[str, float]:
    """Measures samples per second for chunk sizes and convolutions, in rounds of two steps.

    Larger chunks are skipped once they are far slower. The three best settings then take turns.
    """
    made: dict[str, Ours] = {}
    speeds: dict[str, float] = {}
    for conv in ["auto"] if name in ("mlp", "logistic") else CONV_IMPLS:
        for chunk in (1, 2, 4, 8, 16, 32):
            key = f"--config.clients_per_chunk={chunk} --config.conv_impl={conv}"
            changes = {"conv_impl": conv, "clients_per_chunk": chunk}
            short = {"local_epochs": 0, "local_steps": 2, **changes}
            made[key] = Ours(make_problem(WORKLOADS[name], short))
            speeds[key] = take_turns({key: made[key]}, 1)[key].median
            if speeds[key] < max(speeds.values()) / 2:
                break
    best = sorted(speeds, key=lambda key: -speeds[key])[:3]
    again = take_turns({key: made[key] for key in best}, turns)
    return speeds | {key: speed.median for key, speed in again.items()}
