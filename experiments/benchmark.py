"""Measures the speed of a round, alone and compared with other simulators.

    python -m experiments.benchmark                       # this package, all workloads
    python -m experiments.benchmark --peers=torch,loop,vmap,fedjax,pfl --workloads=mlp,pfl_cnn
    python -m experiments.benchmark --methods=all --workloads=simple_cnn   # relative to FedAvg
    python -m experiments.benchmark --augmentations=all --workloads=simple_cnn
    python -m experiments.benchmark --scaling             # time against clients
    python -m experiments.benchmark --startup --workloads=simple_cnn   # before the first round
    python -m experiments.benchmark --tune --workloads=tfcnn   # best settings on this device

Contenders take turns within one process after one warm-up round, and the median is reported with
its spread. Machines are noisy, so rely on the ratios rather than on absolute numbers. The share of
the matmul peak is measured in the same process.
"""

import json
import pathlib
import resource
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from absl import flags

from experiments import app
from experiments.bench import startup
from experiments.bench.jax_peers import JittedLoop, Ours
from experiments.bench.settings import scaling, tune
from experiments.bench.turns import Contender, Speed, take_turns, warn
from experiments.bench.variants import relative
from experiments.bench.workloads import WORKLOADS, flops_per_sample, make_problem
from experiments.peak import matmul_peak
from fedjax_skew import methods
from fedjax_skew.data import augment
from fedjax_skew.errors import unknown
from fedjax_skew.simulation.problem import Problem

PEERS = ("torch", "loop", "vmap", "fedjax", "pfl")

_WORKLOADS = flags.DEFINE_list("workloads", list(WORKLOADS), "Names of the workloads to measure.")
_PEERS = flags.DEFINE_list("peers", [], f"Other simulators to compare with: {', '.join(PEERS)}.")
_TURNS = flags.DEFINE_integer("turns", 5, "Rounds to measure per contender.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", "", "File to which all numbers are written as JSON.")
_SCALING = flags.DEFINE_bool("scaling", False, "Time rounds by cohort size and number of clients.")
_STARTUP = flags.DEFINE_bool("startup", False, "Time what precedes the first round of a process.")
_TUNE = flags.DEFINE_bool("tune", False, "Find the best chunk size and convolution.")
_METHODS = flags.DEFINE_list("methods", [], "Methods to time relative to FedAvg, or 'all'.")
_AUGMENTATIONS = flags.DEFINE_list(
    "augmentations", [], "Augmentations to time relative to none, or 'all'."
)


def measure(name: str, peers: Sequence[str], turns: int) -> dict[str, Any]:
    """Measures all numbers of one workload."""
    workload = WORKLOADS[name]
    problem = make_problem(workload)
    ours = Ours(problem)
    contenders: dict[str, Contender] = {"ours": ours}
    for peer in peers:
        made = _peer(peer, name, problem)
        if made is not None:
            contenders[peer] = made
    before = matmul_peak()
    speeds = take_turns(contenders, turns)
    peak = max(before, matmul_peak())  # Measured next to the turns, as speed varies.
    flops = flops_per_sample(problem)
    others = {peer: speed for peer, speed in speeds.items() if peer != "ours"}
    return {
        "workload": name,
        "description": workload.description,
        "samples_per_second": speeds["ours"]._asdict(),
        "peak_share": speeds["ours"].median * flops / peak,
        "peak_gflops": peak / 1e9,
        "mflop_per_sample": flops / 1e6,
        "compile_seconds": ours.compile_seconds,
        "useful_step_share": ours.useful / max(ours.executed, 1),
        "round_memory_mb": ours.memory_mb,
        "process_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ratio": {peer: speeds["ours"].median / speed.median for peer, speed in others.items()},
        "peer_samples_per_second": {peer: speed._asdict() for peer, speed in others.items()},
    }


def _peer(peer: str, name: str, problem: Problem) -> Contender | None:
    """Returns a peer, or None if it cannot run this workload."""
    if peer == "loop":
        return JittedLoop(problem)
    if peer == "vmap":
        cohort = problem.info.cohort_size
        plain = {"conv_impl": "xla", "clients_per_chunk": cohort, "num_devices": 1}
        return Ours(make_problem(WORKLOADS[name], plain))
    if peer == "pfl" and name != "pfl_cnn":
        return None  # It is only compared on its own benchmark.
    try:
        if peer == "pfl":
            from experiments.bench.pfl_peer import PflRound

            return PflRound(problem)
        if peer == "fedjax":
            from experiments.bench.fedjax_peer import FedjaxRound

            return FedjaxRound(problem)
        from experiments.bench.torch_peer import TorchLoop

        return TorchLoop(problem)
    except ImportError as error:
        # pfl requires an old absl-py but works with the newer one that this package needs.
        hint = "pfl && pip install -U absl-py" if peer == "pfl" else "'fedjax_skew[bench]'"
        print(f"{peer} is left out: {error} (pip install {hint}).")
    except ValueError as error:
        print(f"{peer} is left out: {error}")
    return None


def _variants(turns: int) -> dict[str, Any]:
    """Measures methods and augmentations on every workload."""
    chosen: dict[str, Mapping[str, Any]] = {}
    for field, given, known in (
        ("method", _METHODS.value, methods.REGISTRY),
        ("augment", _AUGMENTATIONS.value, augment.names()),
    ):
        chosen |= {name: {field: name} for name in (known if given == ["all"] else given)}
    result = {}
    for name in _WORKLOADS.value:
        print(WORKLOADS[name].description)
        result[name] = relative(WORKLOADS[name], chosen, turns)
        for row in sorted(result[name], key=lambda row: row["relative_time"]):
            print(
                f"  {row['relative_time']:6.2f}x the time of FedAvg, {row['memory_mb']:6.0f} MB "
                f"({row['fedavg_memory_mb']:.0f}), compiled in {row['compile_seconds']:5.1f} s  "
                f"{row['variant']}"
            )
            warn(row["variant"], Speed(**row["samples_per_second"]))
    return result


def _check_names() -> None:
    for kind, given, known in (
        ("workloads", _WORKLOADS.value, WORKLOADS),
        ("peers", _PEERS.value, PEERS),
    ):
        for name in given:
            if name not in known:
                raise unknown(kind, name, known)


def _show(row: Mapping[str, Any]) -> None:
    speed = Speed(**row["samples_per_second"])
    print(row["description"])
    print(
        f"  {speed.median:.0f} samples/s ({speed.slowest:.0f} to {speed.fastest:.0f}), "
        f"{100 * row['peak_share']:.0f} % of the matmul peak ({row['peak_gflops']:.0f} GFLOP/s), "
        f"{100 * row['useful_step_share']:.0f} % useful steps, compiled in "
        f"{row['compile_seconds']:.1f} s, {row['process_memory_mb']:.0f} MB"
    )
    warn("this package", speed)
    for peer, ratio in row["ratio"].items():
        speed = Speed(**row["peer_samples_per_second"][peer])
        print(
            f"  {ratio:.2f}x {peer} ({speed.median:.0f} samples/s, "
            f"{speed.slowest:.0f} to {speed.fastest:.0f})"
        )
        warn(peer, speed)


def main(argv: Sequence[str]) -> None:
    """Runs the chosen measurement, prints it and writes JSON."""
    _check_names()
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
                f"{row['clients']:8d} clients, {row['cohort']:3d} per round: "
                f"{row['milliseconds']:8.2f} ms, index table {row['table_mb']:.1f} MB"
            )
    elif _STARTUP.value:
        result["startup"] = {name: startup.measure(name) for name in _WORKLOADS.value}
        for name, steps in result["startup"].items():
            words = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in steps.items())
            print(f"{WORKLOADS[name].description}\n  {sum(steps.values()):.1f} s: {words}")
    elif _METHODS.value or _AUGMENTATIONS.value:
        result["variants"] = _variants(_TURNS.value)
    else:
        result["workloads"] = []
        for name in _WORKLOADS.value:
            row = measure(name, _PEERS.value, _TURNS.value)
            result["workloads"].append(row)
            _show(row)
    if _OUTPUT.value:
        pathlib.Path(_OUTPUT.value).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    app.run(main)
