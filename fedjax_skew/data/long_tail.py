"""The server's own samples, and the long tail cut from what is left.

Both happen before the training data is divided among clients, in this order: the server's labelled
samples (class-balanced), its unlabelled samples (random), then the long tail.
"""

from typing import Annotated, Literal

import numpy as np

from fedjax_skew.checks import at_least


def longtail(
    labels: np.ndarray,
    num_classes: int,
    rng: np.random.Generator,
    *,
    if_: Annotated[float, at_least(1)],
    order: Literal["index", "random"] = "index",
) -> np.ndarray:
    """Class c first keeps n_max * if^(-c / (classes - 1)) samples, the rest is left out;
    order=random shuffles which class is head and which is tail.

    Args:
        labels: int ``[n]``.
        num_classes: number of classes.
        rng: draws the samples, and the order of the classes.
        if_: imbalance factor, the ratio of the largest to the smallest class.
        order: how classes are ordered from head to tail.

    Returns:
        Sorted int32 places of the samples that are kept.
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
    """Takes out the server's samples.

    ``labelled`` takes ``floor(labelled * N / classes)`` random samples of every class that has any,
    so the set is balanced whatever the data is. ``unlabelled`` takes ``floor(unlabelled * N)``
    random samples of the rest.

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
                f"server_data.labelled={labelled} of {len(labels)} samples gives no sample to each "
                f"of {len(present)} classes; at least {len(present) / len(labels):.2g} is needed."
            )
        poor = present[counts[present] < each]
        if len(poor):
            raise ValueError(
                f"server_data.labelled={labelled} takes {each} samples of every class but "
                f"class {poor[0]} has only {counts[poor[0]]}; a smaller fraction is needed."
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

    The class at place c of the order keeps ``n_c = n_max * imbalance^(-c / (C - 1))`` samples,
    rounded down, so that the largest class has ``imbalance`` times the smallest. ``n_max`` is the
    largest head for which every class has enough samples; with balanced data it is the class size.

    Args:
        class_counts: int ``[C]``, the samples there are.
        imbalance: ratio of the largest to the smallest class, at least 1.
        class_order: the classes from head to tail; default 0, 1, 2, ...

    Returns:
        int64 ``[C]`` class sizes, at least 1 each.
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
    # The small addition keeps 5000 * 0.01 at 50 when the power is rounded downwards.
    sizes[order] = np.maximum(np.floor(largest * shrink + 1e-6), 1).astype(np.int64)
    if largest < imbalance:
        raise ValueError(
            f"if={imbalance:g} of longtail is impossible: the largest class can keep "
            f"{int(largest)} samples, so the smallest would keep less than one."
        )
    return sizes


def keep_per_class(labels: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns sorted int32 places of ``sizes[c]`` random samples of every class c."""
    shuffled = rng.permutation(len(labels)).astype(np.int32)
    grouped = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels, minlength=len(sizes))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(grouped[rank < np.repeat(sizes, counts)])
