"""The columns of a line of metrics, in ``metrics.jsonl`` and in the history of a simulation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_skew.engine.communication import Traffic
from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.metrics import classification, skew
from fedjax_skew.metrics.over_clients import mean_known, worst_decile

# "[S]" stands for one value per seed, in the order of "seeds" in the summary.
COLUMNS = {
    "round": "rounds done when the line was written",
    "seconds": "wall time of training and evaluation so far, without compilation",
    "accuracy": "[S] top-1 accuracy on the test set, 0 to 1",
    "loss": "[S] mean cross-entropy on the test set",
    "macro_f1": "[S] mean F1 score over classes",
    "per_class_accuracy": "[S][C] recall of each class (null without test samples)",
    "confusion": "[S][C][C] test samples by true class (rows) and predicted class",
    "head_accuracy": "[S] accuracy on the largest classes of the training set",
    "middle_accuracy": "[S] accuracy on the classes in between",
    "tail_accuracy": "[S] accuracy on the smallest classes",
    "validation_accuracy": "[S] accuracy on the validation set, if dataset.validation",
    "train_accuracy": "[S] accuracy on the training pool, if eval_train_set",
    "global_local_accuracy": "[S] mean over clients of the global model's test accuracy, classes "
    "weighted by the client's shares",
    "global_local_std": "[S] standard deviation over clients",
    "global_local_worst_decile": "[S] mean of the lowest tenth of the clients",
    "global_holdout_accuracy": "[S] mean over clients on their held-out samples, if client_holdout",
    "global_holdout_std": "[S] standard deviation over clients",
    "global_holdout_worst_decile": "[S] mean of the lowest tenth of the clients",
    "personal_accuracy": "[S] mean test accuracy of the clients' own models, if there are any",
    "personal_local_accuracy": "[S] the same, with each client's classes weighted by its shares",
    "personal_local_std": "[S] standard deviation over clients",
    "personal_local_worst_decile": "[S] mean of the lowest tenth of the clients",
    "personal_holdout_accuracy": "[S] the same on their held-out samples, if client_holdout",
    "personal_holdout_std": "[S] standard deviation over clients",
    "personal_holdout_worst_decile": "[S] mean of the lowest tenth of the clients",
    "local_before_majority": "[S] accuracy before the local update on majority classes",
    "local_before_minority": "[S] ... minority classes",
    "local_before_vacant": "[S] ... classes that the client lacks",
    "local_after_majority": "[S] accuracy after the local update on majority classes",
    "local_after_minority": "[S] ... minority classes",
    "local_after_vacant": "[S] ... classes that the client lacks",
    "local_deviating": "[S] share of class pairs beyond FedLC's deviation bound",
    "train_loss": "[S] mean local objective in the last round",
    "update_norm": "[S] mean norm of the clients' updates in the last round",
    "mean_update_norm": "[S] norm of their mean",
    "update_cosine": "[S] mean cosine between a client's update and the mean",
    "nonfinite_clients": "[S] clients with non-finite results since the last line",
    "client_lr": "client learning rate of the last round",
    "useful_steps": "local steps that the clients needed since the last line, all seeds",
    "executed_steps": "local steps computed since the last line, all seeds",
    "samples": "training samples used since the last line, all seeds",
    "asked": "[S] clients that received the model since the last line",
    "answered": "[S] those of them that sent an update",
    "bytes_down": "[S] bytes that the server has sent to clients so far",
    "bytes_up": "[S] bytes that clients have sent to the server so far",
    "round_bytes_down": "[S] bytes that the server sent to clients in the last round",
    "round_bytes_up": "[S] bytes that clients sent to the server in the last round",
}


def plain(value: Any) -> Any:
    """Converts a value to plain JSON types; nan and infinities become None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def round_columns(
    report: RoundReport, before: Mapping[str, Any], traffic: Traffic, first_bytes: int = 0
) -> dict[str, Any]:
    """Returns the columns of the rounds since the last evaluation.

    Args:
        report: reports ``[n, ...]`` of the newest rounds.
        before: the same columns for the preceding rounds, or an empty mapping.
        traffic: bytes per client and round.
        first_bytes: bytes that all clients together received before these rounds.
    """
    sums = {
        "nonfinite_clients": report.nonfinite.sum(0, dtype=np.int64),
        "asked": report.asked.sum(0),
        "answered": report.answered.sum(0),
        **{
            name: getattr(report, name).sum(dtype=np.int64)
            for name in ("useful_steps", "executed_steps", "samples")
        },
    }
    sums["bytes_down"] = sums["asked"] * traffic.down + first_bytes
    sums["bytes_up"] = sums["answered"] * traffic.up
    return plain(
        {
            "train_loss": report.loss[-1],
            "update_norm": report.update_norm[-1],
            "mean_update_norm": report.mean_update_norm[-1],
            "update_cosine": report.cosine[-1],
            **{name: value + np.asarray(before.get(name, 0)) for name, value in sums.items()},
            "round_bytes_down": report.asked[-1] * traffic.down,
            "round_bytes_up": report.answered[-1] * traffic.up,
        }
    )


def total_columns(pending: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns that accumulate from the first round.

    Args:
        pending: the columns of the rounds since the last evaluation.
        last: the line of the last evaluation, or an empty mapping.
    """
    return {
        name: np.asarray(pending[name]) + np.asarray(last.get(name, 0))
        for name in ("bytes_down", "bytes_up")
    }


def megabytes(columns: Mapping[str, Any]) -> tuple[float, ...]:
    """Returns the megabytes (10^6 bytes) sent in both directions so far, by seed.

    Args:
        columns: a line of metrics or a summary; the result is empty if it has no bytes.
    """
    down, up = columns.get("bytes_down") or (), columns.get("bytes_up") or ()
    return tuple((a + b) / 1e6 for a, b in zip(down, up, strict=True))


def class_groups(class_counts: np.ndarray, thresholds: tuple[float, float]) -> np.ndarray:
    """Returns masks ``[3, C]`` of head, middle and tail classes of a partition ``[K, C]``."""
    sizes = class_counts.sum(0)
    upper, lower = thresholds
    if upper == lower == 0:
        return classification.groups_by_thirds(sizes)
    return classification.groups_by_thresholds(sizes, upper, lower)


def score_columns(confusion: np.ndarray, loss: np.ndarray, groups: np.ndarray) -> dict[str, Any]:
    """Returns the columns of one evaluation.

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
    """Returns the columns of the clients' own models.

    Args:
        confusion: ``[S, k, C, C]``.
        class_counts: ``[S, k, C]`` of the same clients.
    """
    accuracy = np.asarray(classification.accuracy(confusion)).mean(-1)
    local = accuracy_by_own_classes(confusion, class_counts)
    return {"personal_accuracy": accuracy} | over_clients("personal_local", local)


def global_columns(confusion: np.ndarray, class_counts: np.ndarray) -> dict[str, Any]:
    """Returns the columns of the global model on the label distributions of clients.

    Args:
        confusion: ``[S, C, C]``.
        class_counts: ``[S, k, C]`` of some clients.
    """
    return over_clients("global_local", accuracy_by_own_classes(confusion[:, None], class_counts))


def holdout_columns(name: str, confusion: np.ndarray) -> dict[str, Any]:
    """Returns the columns of confusion matrices ``[S, k, C, C]`` on the clients' own samples."""
    total = confusion.sum((-2, -1))
    right = np.trace(confusion, axis1=-2, axis2=-1)
    return over_clients(name, np.where(total > 0, right / np.maximum(total, 1), np.nan))


def over_clients(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Returns mean, standard deviation and worst decile of accuracies ``[S, k]``, ignoring nan.

    The worst decile is the mean over the lowest tenth of the clients, or at least one of them.
    """
    mean = mean_known(values)
    return {
        f"{name}_accuracy": mean,
        f"{name}_std": np.sqrt(mean_known(np.square(values - mean[..., None]))),
        f"{name}_worst_decile": worst_decile(values),
    }


def accuracy_by_own_classes(confusion: np.ndarray, class_counts: np.ndarray) -> np.ndarray:
    """Returns the accuracy ``[S, k]`` on test data with the clients' label distributions.

    It is computed exactly, as the mean recall of the classes weighted by the client's shares.
    Classes without test samples are excluded.
    """
    recall = np.asarray(classification.per_class_accuracy(confusion))
    counts = np.where(np.isnan(recall), 0, class_counts)
    total = counts.sum(-1)
    weighted = (np.nan_to_num(recall) * counts).sum(-1)
    return np.where(total > 0, weighted / np.maximum(total, 1), np.nan)


def local_columns(
    before: np.ndarray, after: np.ndarray, deviating: np.ndarray, class_counts: np.ndarray
) -> dict[str, Any]:
    """Returns the columns of local models before and after their update.

    Args:
        before: confusion ``[S, k, C, C]`` of the models before local training.
        after: confusion ``[S, k, C, C]`` of the models after local training.
        deviating: ``[S, k]``, as in ``LocalScores``.
        class_counts: ``[S, k, C]`` of the same clients.
    """
    roles = np.asarray(skew.class_roles(class_counts))
    columns: dict[str, Any] = {}
    for when, confusion in (("before", before), ("after", after)):
        by_role = np.asarray(classification.group_accuracy(confusion, roles))
        for i, role in enumerate(("majority", "minority", "vacant")):
            columns[f"local_{when}_{role}"] = mean_known(by_role[..., i])
    return columns | {"local_deviating": mean_known(deviating)}
