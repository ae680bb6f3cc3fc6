"""A validation set, so that choices need not be made on the test set."""

import dataclasses

import numpy as np

from fedjax_skew.data import long_tail
from fedjax_skew.data.dataset import Dataset

_STREAM = 0x7A1  # Distinct from the random streams of partitions.


def with_validation(dataset: Dataset, fraction: float, seed: int = 0) -> Dataset:
    """Moves a class-stratified part of the training set into a validation set.

    The share ``fraction`` of the training samples of every class, rounded down, is moved. The test
    set, the channel statistics and the order of the remaining training samples do not change.

    Args:
        dataset: a dataset without a validation set.
        fraction: in ``[0, 1)``; 0 returns the dataset unchanged.
        seed: random seed.

    Returns:
        The dataset with fewer training samples and with ``x_validation`` and ``y_validation``.
    """
    if not 0 <= fraction < 1:
        raise ValueError(
            f"dataset.validation={fraction} is not allowed; it must be a fraction of at least 0 "
            "and below 1."
        )
    if fraction == 0:
        return dataset
    counts = np.bincount(dataset.y_train, minlength=dataset.num_classes)
    sizes = np.floor(counts * fraction + 1e-9).astype(np.int64)
    if not sizes.any():
        raise ValueError(
            f"dataset.validation={fraction} is less than one sample of every class; the largest "
            f"class has {counts.max()} training samples."
        )
    rng = np.random.default_rng([int(seed), _STREAM])
    taken = long_tail.keep_per_class(dataset.y_train, sizes, rng)
    kept = np.delete(np.arange(len(dataset.y_train)), taken)
    ids = dataset.client_ids
    return dataclasses.replace(
        dataset,
        x_train=dataset.x_train[kept],
        y_train=dataset.y_train[kept],
        x_validation=dataset.x_train[taken],
        y_validation=dataset.y_train[taken],
        client_ids=None if ids is None else ids[kept],
    )
