"""A part of every client's samples that is held out from training."""

import dataclasses

import numpy as np

from fedjax_skew.data.partition import Partition

_STREAM = 0xC11  # Distinct from the random streams of partitions.


def split_clients(
    partition: Partition, labels: np.ndarray, fraction: float, seed: int
) -> tuple[Partition, Partition]:
    """Divides every client's samples at random into a training part and a held-out part.

    Args:
        partition: the samples of every client.
        labels: int ``[N]``, labels of the training samples.
        fraction: share to hold out, rounded down; a client keeps at least one sample.
        seed: random seed.

    Returns:
        The partition of the remaining samples, which includes the server's data, and that of the
        held-out samples.
    """
    rng = np.random.default_rng([int(seed), _STREAM])
    sizes = np.diff(partition.offsets)
    held_sizes = np.minimum(np.floor(sizes * fraction + 1e-9), np.maximum(sizes - 1, 0))
    client = np.repeat(np.arange(len(sizes)), sizes)
    # Samples are in random order within their client; the first ones of each client are held out.
    shuffled = np.lexsort([rng.random(len(client)), client])
    rank = np.empty(len(client), np.int64)
    rank[shuffled] = np.arange(len(client)) - np.repeat(partition.offsets[:-1], sizes)
    held = rank < held_sizes[client]
    empty = np.zeros(0, np.int32)

    def part(chosen: np.ndarray) -> Partition:
        counts = np.zeros_like(partition.class_counts)
        np.add.at(counts, (client[chosen], labels[partition.order[chosen]]), 1)
        return dataclasses.replace(
            partition,
            order=partition.order[chosen],
            offsets=np.concatenate([[0], np.cumsum(counts.sum(1))]).astype(np.int32),
            class_counts=counts,
        )

    return part(~held), dataclasses.replace(part(held), labelled=empty, unlabelled=empty)
