"""From evaluations to ``metrics.jsonl`` lines and ``summary.json``."""

import platform
from importlib import metadata
from typing import Any

import jax
import numpy as np

from fedjax_skew.metrics import classification, curves, skew

# Columns of metrics.jsonl; "[S]" is one value a seed, in the order of summary.json's "seeds".
COLUMNS = {
    "round": "rounds done when the line was written",
    "seconds": "wall time of training and evaluation so far, without compilation",
    "accuracy": "[S] top-1 accuracy on the test set, 0 to 1",
    "loss": "[S] mean cross-entropy on the test set",
    "macro_f1": "[S] mean F1 score over classes",
    "per_class_accuracy": "[S][C] recall of each class (null without test samples)",
    "confusion": "[S][C][C] test samples by true class (rows) and predicted class",
    "head_accuracy": "[S] accuracy on the largest classes of the training set",
    "middle_accuracy": "[S] accuracy on the classes between",
    "tail_accuracy": "[S] accuracy on the smallest classes",
    "validation_accuracy": "[S] accuracy on the validation set, if dataset.validation",
    "train_accuracy": "[S] accuracy on the training pool, if eval_train_set",
    "personal_accuracy": "[S] mean test accuracy of the clients' own models, where there are some",
    "personal_local_accuracy": "[S] the same, each client's classes weighted by its own shares",
    "local_before_majority": "[S] accuracy before the local update on majority classes",
    "local_before_minority": "[S] ... minority classes",
    "local_before_vacant": "[S] ... classes the client lacks",
    "local_after_majority": "[S] accuracy after the local update on majority classes",
    "local_after_minority": "[S] ... minority classes",
    "local_after_vacant": "[S] ... classes the client lacks",
    "local_deviating": "[S] share of class pairs beyond FedLC's deviation bound",
    "train_loss": "[S] mean local objective in the last round",
    "update_norm": "[S] mean norm of the clients' updates in the last round",
    "mean_update_norm": "[S] norm of their mean",
    "update_cosine": "[S] mean cosine of a client's update to the mean",
    "nonfinite_clients": "[S] clients with non-finite results since the last line",
    "client_lr": "client learning rate of the last round",
    "useful_steps": "local steps the clients needed since the last line, all seeds",
    "executed_steps": "local steps computed since the last line, all seeds",
    "samples": "training samples used since the last line, all seeds",
}


def score_columns(confusion: np.ndarray, loss: np.ndarray, groups: np.ndarray) -> dict[str, Any]:
    """Columns of one evaluation.

    Args:
        confusion: ``[S, C, C]``.
        loss: ``[S]``.
        groups: bool masks ``[S, 3, C]`` of head, middle and tail classes.
    """
    by_group = np.asarray(classification.group_accuracy(confusion, groups))
    return {
        "accuracy": np.asarray(classification.accuracy(confusion)),
        "loss": loss,
        "macro_f1": np.asarray(classification.macro_f1(confusion)),
        "per_class_accuracy": np.asarray(classification.per_class_accuracy(confusion)),
        "confusion": confusion,
        "head_accuracy": by_group[:, 0],
        "middle_accuracy": by_group[:, 1],
        "tail_accuracy": by_group[:, 2],
    }


def personal_columns(confusion: np.ndarray, class_counts: np.ndarray) -> dict[str, Any]:
    """Columns of the clients' own models.

    Args:
        confusion: ``[S, k, C, C]``.
        class_counts: ``[S, k, C]`` of the same clients.
    """
    recall = np.nan_to_num(np.asarray(classification.per_class_accuracy(confusion)))
    share = class_counts / class_counts.sum(-1, keepdims=True)
    return {
        "personal_accuracy": np.asarray(classification.accuracy(confusion)).mean(-1),
        "personal_local_accuracy": (recall * share).sum(-1).mean(-1),
    }


def local_columns(
    before: np.ndarray, after: np.ndarray, deviating: np.ndarray, class_counts: np.ndarray
) -> dict[str, Any]:
    """Columns of local models around their update.

    Args:
        before: confusion ``[S, k, C, C]`` of the models the clients start from.
        after: confusion ``[S, k, C, C]`` of the models they end with.
        deviating: ``[S, k]``.
        class_counts: ``[S, k, C]`` of the same clients.
    """
    roles = np.asarray(skew.class_roles(class_counts))
    columns: dict[str, Any] = {}
    for when, confusion in (("before", before), ("after", after)):
        by_role = np.asarray(classification.group_accuracy(confusion, roles))
        for i, role in enumerate(("majority", "minority", "vacant")):
            columns[f"local_{when}_{role}"] = _mean_known(by_role[..., i])
    return columns | {"local_deviating": _mean_known(deviating)}


def _mean_known(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis without nan; nan if there is nothing else."""
    known = ~np.isnan(values)
    total = np.where(known, values, 0.0).sum(-1)
    return np.where(known.any(-1), total / np.maximum(known.sum(-1), 1), np.nan)


def curve_summary(lines: list[dict[str, Any]], column: str) -> dict[str, Any]:
    """Last, best and mean of the last 50 rounds of a column, per seed and over seeds."""
    found = curves.summarize([line["round"] for line in lines], _by_seed(lines, column))
    best_round = {"per_seed": found.pop("best_round").tolist()}
    return {name: _over_seeds(values) for name, values in found.items()} | {
        "best_round": best_round
    }


def at_best_validation(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Test accuracy of the first round with the best validation accuracy, as a kind of summary."""
    validation = np.nan_to_num(_by_seed(lines, "validation_accuracy"), nan=-1.0)
    best = validation.argmax(-1)[:, None]
    values = np.take_along_axis(_by_seed(lines, "accuracy"), best, -1)[:, 0]
    return {"at_best_validation": _over_seeds(values)}


def _by_seed(lines: list[dict[str, Any]], column: str) -> np.ndarray:
    """A column as ``[S, T]``."""
    values = [[np.nan if v is None else v for v in line[column]] for line in lines]
    return np.array(values, np.float64).T


def _over_seeds(per_seed: np.ndarray) -> dict[str, Any]:
    mean, std = curves.mean_std(per_seed)
    return {"per_seed": per_seed.tolist(), "mean": mean, "std": std}


def versions() -> dict[str, str]:
    """Versions of what computed the numbers."""
    packages = ("fedjax_skew", "jax", "jaxlib", "flax", "optax", "numpy", "tensorflow-datasets")
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def device() -> dict[str, Any]:
    """What the run ran on."""
    devices = jax.devices()
    return {
        "kind": devices[0].device_kind,
        "platform": devices[0].platform,
        "count": len(devices),
        "processes": jax.process_count(),
        "machine": platform.processor() or platform.machine(),
    }
