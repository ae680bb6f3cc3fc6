"""The federated view of a dataset: one copy of the samples and an index table.

Samples are stored once. Client k is a slice ``order[offsets[k]:offsets[k + 1]]`` of sample ids,
sorted by class, so that no samples are copied per client and each class of a client is a slice as
well. Several seeds share the samples and have one index table each.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_skew.data.partition import Partition

Array = Any  # A JAX array, or a numpy array on the host.

_MULTIPLE = 1024  # Index tables are padded to a multiple of this.


class FederatedData(NamedTuple):
    """Arrays of a federated training set for ``S`` seeds and ``K`` clients.

    Attributes:
        x: samples ``[N, ...]`` as stored; None, like ``labels`` and ``order``, if the samples are
            not on the device.
        labels: int32 ``[N]``.
        order: int32 ``[S, n]``, sample ids sorted by (client, class), then padding.
        offsets: int32 ``[S, K + 1]``.
        class_counts: int32 ``[S, K, C]``.
        labelled: int32 ``[S, a]``, ids of the server's labelled samples.
        unlabelled: int32 ``[S, u]``, ids of the server's unlabelled samples.
        labelled_x: samples that ``labelled`` indexes; ``x`` if None.
        labelled_labels: labels that ``labelled`` indexes; ``labels`` if None.
        unlabelled_x: samples that ``unlabelled`` indexes; ``x`` if None.
        starts: int32 ``[S, K]``, the positions of clients in ``order``; their offsets if None.
        log_weights: float32 ``[T, K]``, logarithms of the weights with which round ``t`` (modulo
            T) draws clients, ``-inf`` for unavailable clients; None for uniform draws.
    """

    x: Array
    labels: Array
    order: Array
    offsets: Array
    class_counts: Array
    labelled: Array
    unlabelled: Array
    labelled_x: Array | None = None
    labelled_labels: Array | None = None
    unlabelled_x: Array | None = None
    starts: Array | None = None
    log_weights: Array | None = None

    def size(self, seed: Array, client: Array) -> Array:
        """Returns the number of a client's samples."""
        return self.offsets[seed, client + 1] - self.offsets[seed, client]

    def start(self, seed: Array, client: Array) -> Array:
        """Returns the position of a client's first sample in ``order``."""
        return (self.offsets if self.starts is None else self.starts)[seed, client]

    def server_labelled(self, ids: Array) -> tuple[Array, Array]:
        """Returns the server's labelled samples and labels for the ids ``[a]``."""
        if self.labelled_x is None or self.labelled_labels is None:
            return self.x[ids], self.labels[ids]
        return self.labelled_x[ids], self.labelled_labels[ids]

    def server_unlabelled(self, ids: Array) -> Array:
        """Returns the server's unlabelled samples for the ids ``[u]``."""
        return (self.x if self.unlabelled_x is None else self.unlabelled_x)[ids]


def federate(
    x: np.ndarray,
    labels: np.ndarray,
    partitions: Sequence[Partition],
    unlabelled_x: np.ndarray | None = None,
) -> FederatedData:
    """Stacks the partitions of several seeds over one dataset, as numpy arrays on the host.

    Partitions may use different numbers of samples. Tables are padded with sample 0, which lies
    beyond all offsets, to a multiple of a fixed number, so that runs of other seeds can reuse the
    compiled programs.
    """
    width = _MULTIPLE * math.ceil(max(len(p.order) for p in partitions) / _MULTIPLE)
    order = np.stack([np.pad(p.order, (0, width - len(p.order))) for p in partitions])
    labelled = np.stack([p.labelled for p in partitions])
    if unlabelled_x is None:
        unlabelled = np.stack([p.unlabelled for p in partitions])
    else:
        unlabelled = np.tile(np.arange(len(unlabelled_x), dtype=np.int32), (len(partitions), 1))
    return FederatedData(
        x,
        labels.astype(np.int32),
        order.astype(np.int32),
        np.stack([p.offsets for p in partitions]).astype(np.int32),
        np.stack([p.class_counts for p in partitions]).astype(np.int32),
        labelled.astype(np.int32),
        unlabelled.astype(np.int32),
        unlabelled_x=unlabelled_x,
    )
