"""The summary of a run, which is the content of ``summary.json``."""

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import jax
import numpy as np

import fedjax_skew
from fedjax_skew.metrics import curves, skew
from fedjax_skew.simulation.columns import plain
from fedjax_skew.simulation.description import describe
from fedjax_skew.simulation.problem import Problem

History = Sequence[Mapping[str, Any]]
_OPTIONAL = ("head", "middle", "tail", "validation", "train", "personal")
_OVER_CLIENTS = ("global_local", "global_holdout", "personal_local", "personal_holdout")


def summarize(problem: Problem, history: History, *, initial: str, final: str) -> dict[str, Any]:
    """Returns the summary of a finished run as plain JSON types.

    Args:
        problem: the problem of the run.
        history: the lines of metrics.
        initial: the hash of the initial parameters.
        final: the hash of the final parameters.
    """
    config, last = describe(problem), history[-1]
    methods = [phase.method for phase in problem.phases]
    seconds = last["seconds"]
    summary: dict[str, Any] = {
        "status": "finished",
        "method": config["method"],
        "hparams": {name: config["hparams"].get(name, {}) for name in config["method"].split("+")},
        "dataset": problem.dataset.name,
        "data_hash": problem.dataset.hash,
        "model": config["model"],
        "partition": config["partition"],
        "partition_hash": [p.hash for p in problem.partitions],
        "skew": [skew.skew_statistics(p.class_counts) for p in problem.partitions],
        "seeds": list(problem.seeds),
        "rounds": config["rounds"],
        "server_data": [
            kind
            for kind in ("labelled", "unlabelled")
            if any(getattr(method, f"needs_{kind}_data") for method in methods)
        ],
        "accuracy": curve_summary(history, "accuracy"),
        "macro_f1": curve_summary(history, "macro_f1"),
    }
    for column in (f"{name}_accuracy" for name in (*_OPTIONAL, *_OVER_CLIENTS)):
        if column in last:
            summary[column] = curve_summary(history, column)
    for column in (f"{name}_{what}" for name in _OVER_CLIENTS for what in ("std", "worst_decile")):
        if column in last:
            summary[column] = {"last": _over_seeds(_by_seed(history[-1:], column)[:, 0])}
    useful, executed, samples = (
        sum(line[column] for line in history)
        for column in ("useful_steps", "executed_steps", "samples")
    )
    summary |= {
        "per_class_accuracy": last["per_class_accuracy"],
        "confusion": last["confusion"],
        "bytes_down": last["bytes_down"],
        "bytes_up": last["bytes_up"],
        "nonfinite_clients": int(sum(sum(line["nonfinite_clients"]) for line in history)),
        "initial_params_hash": initial,
        "final_params_hash": final,
        "wall_seconds": seconds,
        "samples_per_second": samples / max(seconds, 1e-9),
        "useful_step_share": useful / max(executed, 1),
        "versions": versions(),
        "device": device(),
        "matmul_precision": config["matmul_precision"],
        "deterministic": config["deterministic"],
    }
    return plain(summary)


def curve_summary(history: History, column: str) -> dict[str, Any]:
    """Returns the last, the best and the mean of a column, per seed and over seeds.

    The mean is taken over the last 50 rounds. With a validation set, ``at_best_validation`` is the
    value at the first evaluation with the best validation accuracy.
    """
    found = curves.summarize([line["round"] for line in history], _by_seed(history, column))
    if "validation_accuracy" in history[-1]:
        validation = np.nan_to_num(_by_seed(history, "validation_accuracy"), nan=-1.0)
        best = validation.argmax(-1)[:, None]
        chosen = np.take_along_axis(_by_seed(history, column), best, -1)[:, 0]
        found["at_best_validation"] = chosen
    best_round = {"per_seed": found.pop("best_round").tolist()}
    return {name: _over_seeds(values) for name, values in found.items()} | {
        "best_round": best_round
    }


def _by_seed(history: History, column: str) -> np.ndarray:
    """Returns a column as ``[S, T]``."""
    values = [[np.nan if v is None else v for v in line[column]] for line in history]
    return np.array(values, np.float64).T


def _over_seeds(per_seed: np.ndarray) -> dict[str, Any]:
    mean, std = curves.mean_std(per_seed)
    return {"per_seed": per_seed.tolist(), "mean": mean, "std": std}


def versions() -> dict[str, str]:
    """Returns the versions of Python, of this package and of its main dependencies."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy", "tensorflow-datasets")
    found = {"fedjax_skew": fedjax_skew.__version__, "python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def device() -> dict[str, Any]:
    """Returns a description of the devices and of the machine."""
    devices = jax.devices()
    return {
        "kind": devices[0].device_kind,
        "platform": devices[0].platform,
        "count": len(devices),
        "processes": jax.process_count(),
        "machine": platform.processor() or platform.machine(),
    }
