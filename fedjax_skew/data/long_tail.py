"""Selection of the server's samples, and of a long-tailed subset of the remaining samples.

Both are applied before the training data is divided among clients, in this order: the server's
labelled samples (class-balanced), its unlabelled samples (random), then the long tail.
"""

from typing import Annotated, Literal

import numpy as np

from fedjax_skew.checks import at_least
from fedjax_skew.data import apportion


def longtail(
    labels: np.ndarray,
    num_classes: int,
    rng: np.random.Generator,
    *,
    if_: Annotated[float, at_least(1)],
    order: Literal["index", "random"] = "index",
) -> np.ndarray:
    """Before the partition, class c keeps n_max * if^(-c / (classes - 1)) samples and the others
    are discarded; order=random shuffles the classes from head to tail.

    Args:
        labels: int ``[n]``.
        num_classes: number of classes.
        rng: draws the samples and the order of the classes.
        if_: imbalance factor, the ratio of the largest to the smallest class.
        order: order of the classes from head to tail.

    Returns:
        Sorted int32 positions of the samples that are kept.
    """
    head_to_tail = rng.permutation(num_classes) if order == "random" else None
    sizes = profile(np.bincount(labels, minlength=num_classes), if_, head_to_tail)
    return keep_per_class(labels, sizes, rng)


def server_splits(
    labels: np.ndarray,
    *,
    num_classes: int,
    labelled: float,
    unlabelled: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Selects the server's samples.

    The labelled set has ``floor(labelled * N / classes)`` random samples of every class that has
    samples, so that it is balanced even if the data is not. The unlabelled set has
    ``floor(unlabelled * N)`` random samples of the others.

    Args:
        labels: int ``[N]``.
        num_classes: number of classes.
        labelled: fraction of the training data.
        unlabelled: fraction of the training data.
        rng: draws the samples.

    Returns:
        Sorted sample ids: labelled, unlabelled, and the remaining pool.
    """
    for field, value in (("labelled", labelled), ("unlabelled", unlabelled)):
        if not 0 <= value < 1:
            raise ValueError(
                f"server_data.{field}={value} must be a fraction of at least 0 and below 1."
            )
    if labelled + unlabelled >= 1:
        raise ValueError(
            f"server_data.labelled={labelled} and unlabelled={unlabelled} leave nothing for the "
            "clients; their sum must be below 1."
        )
    ids = np.arange(len(labels), dtype=np.int32)
    taken = np.zeros(0, np.int32)
    if labelled > 0:
        counts = np.bincount(labels, minlength=num_classes)
        present = np.flatnonzero(counts)
        each = int(labelled * len(labels) / len(present) + 1e-9)
        if each < 1:
            raise ValueError(
                f"server_data.labelled={labelled} of {len(labels)} samples is less than one sample "
                f"per class; at least {len(present) / len(labels):.2g} is needed for "
                f"{len(present)} classes."
            )
        poor = present[counts[present] < each]
        if len(poor):
            raise ValueError(
                f"server_data.labelled={labelled} requires {each} samples of every class, but "
                f"class {poor[0]} has only {counts[poor[0]]}; use a smaller fraction."
            )
        taken = keep_per_class(labels, np.where(counts > 0, each, 0), rng)
        ids = np.delete(ids, taken)
    held = np.zeros(0, np.int32)
    amount = int(unlabelled * len(labels) + 1e-9)
    if unlabelled > 0 and amount < 1:
        raise ValueError(
            f"server_data.unlabelled={unlabelled} of {len(labels)} samples is less than one sample."
        )
    if amount >= len(ids) > 0 and amount:
        raise ValueError(
            f"server_data.unlabelled={unlabelled} leaves no training sample for the clients."
        )
    if amount:
        places = np.sort(rng.choice(len(ids), amount, replace=False))
        held, ids = ids[places], np.delete(ids, places)
    return taken, held, ids


def profile(
    class_counts: np.ndarray, imbalance: float, class_order: np.ndarray | None = None
) -> np.ndarray:
    """Returns the class sizes of an exponential long tail.

    The class at position c of the order keeps ``n_c = n_max * imbalance^(-c / (C - 1))`` samples,
    rounded down, so that the largest class has ``imbalance`` times as many samples as the smallest.
    ``n_max`` is the largest value for which every class has enough samples; for balanced data it is
    the class size.

    Args:
        class_counts: int ``[C]``, the number of available samples per class.
        imbalance: ratio of the largest to the smallest class, at least 1.
        class_order: the classes from head to tail; 0, 1, 2, ... by default.

    Returns:
        int64 ``[C]`` class sizes, each at least 1.
    """
    num_classes = len(class_counts)
    if num_classes < 2:
        raise ValueError(f"longtail needs at least 2 classes but there is {num_classes}.")
    order = np.arange(num_classes) if class_order is None else class_order
    if (class_counts < 1).any():
        raise ValueError(
            f"longtail needs samples of every class but class {np.argmin(class_counts)} has none."
        )
    shrink = imbalance ** (-np.arange(num_classes) / (num_classes - 1))
    largest = np.floor(class_counts[order] / shrink * (1 + 1e-12)).min()
    sizes = np.empty(num_classes, np.int64)
    # The small addend keeps 5000 * 0.01 at 50 if the power is rounded down.
    sizes[order] = np.maximum(np.floor(largest * shrink + 1e-6), 1).astype(np.int64)
    if largest < imbalance:
        raise ValueError(
            f"if={imbalance:g} of longtail is impossible: the largest class can keep "
            f"{int(largest)} samples, so the smallest would keep less than one."
        )
    return sizes


def keep_per_class(labels: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns sorted int32 positions of ``sizes[c]`` random samples of every class c."""
    grouped = apportion.group_by_class(labels, rng)
    counts = np.bincount(labels, minlength=len(sizes))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(grouped[rank < np.repeat(sizes, counts)])
