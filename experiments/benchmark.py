"""Measures rounds side by side with other ways to simulate them.

    python -m experiments.benchmark                       # this package, all workloads
    python -m experiments.benchmark --peers=torch,loop,vmap,pfl --workloads=mlp,pfl_cnn
    python -m experiments.benchmark --scaling             # time against clients
    python -m experiments.benchmark --tune --workloads=tfcnn   # best settings on this device

Contenders take turns within one process and the median is reported, because machines are noisy:
read the ratios. The share of the matmul peak is measured in the same process.
"""

import json
import pathlib
import resource
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from experiments import app
from experiments.bench.jax_peers import JittedLoop, Ours
from experiments.bench.workloads import (
    WORKLOADS,
    flops_per_sample,
    make_config,
    make_dataset,
    make_problem,
)
from experiments.flops import matmul_peak
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.errors import unknown
from fedjax_skew.simulation.problem import build

LONG_SECONDS = 20.0
PEERS = ("torch", "loop", "vmap", "pfl")

_WORKLOADS = flags.DEFINE_list("workloads", list(WORKLOADS), "Names of workloads.")
_PEERS = flags.DEFINE_list("peers", [], f"Peers to run beside: {', '.join(PEERS)}.")
_TURNS = flags.DEFINE_integer("turns", 5, "Rounds measured of every contender.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", "", "Writes all numbers as JSON here.")
_SCALING = flags.DEFINE_bool("scaling", False, "Times rounds against cohort and federation size.")
_TUNE = flags.DEFINE_bool("tune", False, "Finds the best chunk size and convolution.")


def take_turns(contenders: dict[str, Any], turns: int) -> dict[str, float]:
    """Median samples per second of contenders that run one round each in turn.

    The first turn warms up and does not count, except for a contender that takes very long.
    """
    found = {name: [_timed(contender)] for name, contender in contenders.items()}
    quick = [name for name in found if found[name][0][1] < LONG_SECONDS]
    for name in quick:
        found[name].clear()
    for _ in range(turns):
        for name in quick:
            found[name].append(_timed(contenders[name]))
    return {name: float(np.median([n / t for n, t in rows])) for name, rows in found.items()}


def _timed(contender: Any) -> tuple[int, float]:
    """Samples and seconds of one round."""
    began = time.perf_counter()
    return contender.round(), time.perf_counter() - began


def measure(name: str, peers: Sequence[str], turns: int) -> dict[str, Any]:
    """All numbers of one workload."""
    workload = WORKLOADS[name]
    problem = make_problem(workload)
    ours = Ours(problem)
    contenders: dict[str, Any] = {"ours": ours}
    for peer in peers:
        made = _peer(peer, name, problem)
        if made is not None:
            contenders[peer] = made
    before = matmul_peak()
    speeds = take_turns(contenders, turns)
    peak = max(before, matmul_peak())  # A machine's speed changes; this was near the turns.
    flops = flops_per_sample(problem)
    return {
        "workload": name,
        "description": workload.description,
        "samples_per_second": speeds["ours"],
        "peak_share": speeds["ours"] * flops / peak,
        "peak_gflops": peak / 1e9,
        "mflop_per_sample": flops / 1e6,
        "compile_seconds": ours.compile_seconds,
        "useful_step_share": ours.useful / max(ours.executed, 1),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ratio": {p: speeds["ours"] / s for p, s in speeds.items() if p != "ours"},
        "peer_samples_per_second": {p: s for p, s in speeds.items() if p != "ours"},
    }


def _peer(peer: str, name: str, problem) -> Any:
    if peer == "loop":
        return JittedLoop(problem)
    if peer == "vmap":
        cohort = problem.info.cohort_size
        plain = {"conv_impl": "xla", "clients_per_chunk": cohort, "num_devices": 1}
        return Ours(make_problem(WORKLOADS[name], **plain))
    if peer == "pfl" and name != "pfl_cnn":
        return None  # Its own benchmark is the workload for it.
    try:
        if peer == "pfl":
            from experiments.bench.pfl_peer import PflRound

            return PflRound(problem)
        from experiments.bench.torch_peer import TorchLoop

        return TorchLoop(problem)
    except ImportError as error:
        # pfl asks for an old absl-py but works with the newer one of this package.
        hint = "pfl && pip install -U absl-py" if peer == "pfl" else "'fedjax_skew[bench]'"
        print(f"{peer} is left out: {error} (pip install {hint}).")
        return None


def scaling(turns: int) -> list[dict[str, Any]]:
    """Time of a round against clients per round, and against clients in all."""
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
        times = [[_timed(ours)[1] for ours, _ in group] for _ in range(turns + 1)]
        median = 1000 * np.median(times[1:], axis=0)  # The first turn warms up.
        rows += [
            {"clients": size[0], "cohort": size[1], "milliseconds": float(ms), "table_mb": table}
            for size, ms, (_, table) in zip(sizes, median, group, strict=True)
        ]
    return rows


def _round_of(dataset: Dataset, clients: int, cohort: int) -> tuple[Ours, float]:
    """Rounds of five steps of the MLP, and the size of the tables of clients in MB."""
    config = make_config(
        WORKLOADS["mlp"],
        partition="iid",
        num_clients=clients,
        participation=cohort / clients,
        local_epochs=0,
        local_steps=5,
    )
    problem = build(config, dataset=dataset)
    tables = jax.tree.leaves(problem.data._replace(x=None))
    return Ours(problem), sum(a.nbytes for a in tables) / 2**20


def tune(name: str, turns: int) -> dict[str, float]:
    """Samples per second for chunk sizes and convolutions, in rounds of two steps.

    Larger chunks are left out once they are far behind; the three best then take turns.
    """
    made: dict[str, Ours] = {}
    speeds: dict[str, float] = {}
    for conv in ["auto"] if name in ("mlp", "logistic") else ["patches", "xla"]:
        for chunk in (1, 2, 4, 8, 16, 32):
            key = f"--config.clients_per_chunk={chunk} --config.conv_impl={conv}"
            changes = {"conv_impl": conv, "clients_per_chunk": chunk}
            problem = make_problem(WORKLOADS[name], local_epochs=0, local_steps=2, **changes)
            made[key] = Ours(problem)
            speeds |= take_turns({key: made[key]}, 1)
            if speeds[key] < max(speeds.values()) / 2:
                break
    best = sorted(speeds, key=lambda key: -speeds[key])[:3]
    return speeds | take_turns({key: made[key] for key in best}, turns)


def main(argv: Sequence[str]) -> None:
    """Prints tables and writes JSON."""
    for kind, given, known in (
        ("workloads", _WORKLOADS.value, WORKLOADS),
        ("peers", _PEERS.value, PEERS),
    ):
        for name in given:
            if name not in known:
                raise unknown(kind, name, known)
    result: dict[str, Any] = {"device": jax.devices()[0].device_kind, "devices": len(jax.devices())}
    if _TUNE.value:
        for name in _WORKLOADS.value:
            speeds = tune(name, _TURNS.value)
            result.setdefault("tune", {})[name] = speeds
            print(WORKLOADS[name].description)
            for key, speed in sorted(speeds.items(), key=lambda item: -item[1]):
                print(f"  {speed:10.0f} samples/s  {key}")
    elif _SCALING.value:
        result["scaling"] = scaling(_TURNS.value)
        for row in result["scaling"]:
            print(
                f"{row['clients']:8d} clients, {row['cohort']:3d} a round: "
                f"{row['milliseconds']:8.2f} ms, index table {row['table_mb']:.1f} MB"
            )
    else:
        result["workloads"] = []
        for name in _WORKLOADS.value:
            row = measure(name, _PEERS.value, _TURNS.value)
            result["workloads"].append(row)
            print(row["description"])
            print(
                f"  {row['samples_per_second']:.0f} samples/s, {100 * row['peak_share']:.0f} % of "
                f"the matmul peak ({row['peak_gflops']:.0f} GFLOP/s), "
                f"{100 * row['useful_step_share']:.0f} % useful steps, compiled in "
                f"{row['compile_seconds']:.1f} s, {row['peak_memory_mb']:.0f} MB"
            )
            for peer, ratio in row["ratio"].items():
                speed = row["peer_samples_per_second"][peer]
                print(f"  {ratio:.2f}x {peer} ({speed:.0f} samples/s)")
    if _OUTPUT.value:
        pathlib.Path(_OUTPUT.value).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    app.run(main)
