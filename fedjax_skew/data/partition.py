"""Partition of a training set among clients: ``partition("dirichlet(beta=0.1)", labels, ...)``.

A specification is ``name`` or ``name(key=value, ...)``, optionally preceded by a long tail, as in
``longtail(if=100)+dirichlet(alpha=0.4)``. :func:`names` lists the rules. In every partition, a
sample belongs to at most one client, every client has at least one sample, samples are discarded
only if the rule says so, and equal seeds give equal results. An exact partition can be built from
index lists or client ids; see :class:`Partition`.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedjax_skew import checks, errors
from fedjax_skew.data import arrays, client_lists, label_skew, long_tail, partition_rules
from fedjax_skew.data import spec as spec_lib

_NO_SAMPLES = np.zeros(0, np.int32)
_RULES: dict[str, Callable[..., np.ndarray]] = {
    rule.__name__: rule
    for rule in (
        partition_rules.iid,
        partition_rules.power_law,
        partition_rules.quantity,
        partition_rules.shards,
        label_skew.dirichlet,
        label_skew.grouped_dirichlet,
        label_skew.double,
        partition_rules.natural,
        partition_rules.counts,
        partition_rules.file,
    )
}


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The training samples that every client holds.

    Attributes:
        order: int32 ``[n]``, training sample ids sorted by (client, class, id).
        offsets: int32 ``[K + 1]``; client k holds ``order[offsets[k]:offsets[k + 1]]``.
        class_counts: int32 ``[K, C]``.
        labelled: int32 ``[a]``, the server's labelled class-balanced samples, possibly none.
        unlabelled: int32 ``[u]``, the server's unlabelled samples, possibly none.
    """

    order: np.ndarray
    offsets: np.ndarray
    class_counts: np.ndarray
    labelled: np.ndarray
    unlabelled: np.ndarray

    @classmethod
    def from_indices(
        cls, lists: Sequence[Any], labels: np.ndarray, num_classes: int | None = None
    ) -> "Partition":
        """Builds a partition from one list of training sample indices per client.

        Args:
            lists: sample indices of every client; samples that are not in any list are discarded.
            labels: int ``[N]``, labels of the training samples.
            num_classes: number of classes; one more than the largest label by default.

        Raises:
            ValueError: if a list is invalid; the message names the client and the index.
        """
        labels, num_classes = _check_labels(labels, num_classes)
        clients = client_lists.assign(lists, len(labels), "The partition")
        ids = np.arange(len(labels), dtype=np.int32)
        return _assemble(clients, labels, ids, len(lists), num_classes)

    @classmethod
    def from_client_ids(
        cls, client_ids: Any, labels: np.ndarray, num_classes: int | None = None
    ) -> "Partition":
        """Builds a partition from the client of every training sample.

        Args:
            client_ids: int ``[N]``; every distinct number is a client, in ascending order.
            labels: int ``[N]``, labels of the training samples.
            num_classes: number of classes; one more than the largest label by default.
        """
        labels, num_classes = _check_labels(labels, num_classes)
        client_ids = _check_client_ids(client_ids, labels)
        found, clients = np.unique(client_ids, return_inverse=True)
        ids = np.arange(len(labels), dtype=np.int32)
        return _assemble(clients.astype(np.int32), labels, ids, len(found), num_classes)

    @functools.cached_property
    def hash(self) -> str:
        """The SHA-256 hash of all arrays, which does not depend on the machine."""
        digest = hashlib.sha256()
        for field in dataclasses.fields(self):
            array = np.ascontiguousarray(getattr(self, field.name), "<i4")
            digest.update(f"{field.name}{array.shape}".encode())
            digest.update(array.data)
        return digest.hexdigest()

    def check(self, labels: np.ndarray, num_classes: int) -> None:
        """Raises ``ValueError`` unless the partition was built for these labels."""
        labels, num_classes = _check_labels(labels, num_classes)
        used = np.concatenate([self.order, self.labelled, self.unlabelled])
        if used.max(initial=0) < len(labels) and self.class_counts.shape[1] == num_classes:
            clients = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
            counts = np.zeros_like(self.class_counts)
            np.add.at(counts, (clients, labels[self.order]), 1)
            if np.array_equal(counts, self.class_counts):
                return
        raise ValueError(
            f"partition was built for other labels than the {len(labels)} training labels of "
            f"{num_classes} classes that the dataset has."
        )


def names() -> dict[str, str]:
    """Returns every partition rule, with its arguments and defaults, and a description."""
    listing = {spec_lib.signature(n, rule): spec_lib.summary(rule) for n, rule in _RULES.items()}
    tail = spec_lib.signature("longtail", long_tail.longtail)
    listing[f"{tail}+<partition>"] = spec_lib.summary(long_tail.longtail)
    return listing


def check(spec: str) -> None:
    """Raises ``ValueError`` if a specification is invalid, which is checked without data."""
    _parse(spec)


def partition(
    spec: str,
    labels: np.ndarray,
    *,
    num_clients: int,
    num_classes: int,
    seed: int,
    client_ids: np.ndarray | None = None,
    labelled: float = 0.0,
    unlabelled: float = 0.0,
) -> Partition:
    """Divides training samples among clients.

    The server's samples are taken first, then the long tail is applied, and then the remaining
    samples are divided. Each of these stages has its own random stream, so that the server's
    samples do not depend on the specification.

    Args:
        spec: the specification, such as ``longtail(if=100)+dirichlet(alpha=0.4)``.
        labels: int ``[N]``, labels of the training samples.
        num_clients: number of clients.
        num_classes: number of classes.
        seed: random seed.
        client_ids: int ``[N]`` natural clients, required by ``natural``.
        labelled: fraction of the training data that the server keeps with labels, class-balanced.
        unlabelled: fraction of the training data that the server keeps without labels.

    Raises:
        ValueError: if an argument is invalid; the message says what is allowed.
    """
    tail, rule, arguments = _parse(spec)
    checks.whole(1).check("num_clients", num_clients)
    checks.whole(0, 2**63 - 1).check("seed", seed)
    labels, num_classes = _check_labels(labels, num_classes)
    server, held, ids = long_tail.server_splits(
        labels,
        num_classes=num_classes,
        labelled=labelled,
        unlabelled=unlabelled,
        rng=_stream(seed, 0),
    )
    if tail is not None:
        ids = ids[long_tail.longtail(labels[ids], num_classes, _stream(seed, 1), **tail)]
    if num_clients > len(ids):
        raise ValueError(
            f"num_clients={num_clients} is more than the {len(ids)} training samples to be "
            "divided; every client needs at least one."
        )
    natural = None if client_ids is None else _check_client_ids(client_ids, labels)[ids]
    pool = partition_rules.Pool(
        labels[ids], ids, int(num_clients), num_classes, len(labels), natural
    )
    clients = rule(pool, _stream(seed, 2), **arguments)
    return _assemble(clients, pool.labels, ids, pool.num_clients, num_classes, server, held)


def _parse(text: str) -> tuple[dict[str, Any] | None, Callable[..., np.ndarray], dict[str, Any]]:
    field = "partition"
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"partition={text!r} must be a text such as 'dirichlet(beta=0.1)'.")
    parts = [spec_lib.parse(part, field) for part in spec_lib.split(text, "+", field)]
    tail = None
    if len(parts) > 1 and parts[0].name == "longtail":
        tail = spec_lib.bind(parts.pop(0), long_tail.longtail, field)
    if parts[0].name not in _RULES and parts[0].name != "longtail":
        raise errors.unknown(field, parts[0].name, [*_RULES, "longtail"])
    if len(parts) > 1 or parts[0].name == "longtail":
        raise ValueError(
            f"partition={text!r} is not of the form <partition> or longtail(if=...)+<partition>, "
            "for example 'longtail(if=100)+dirichlet(beta=0.5)'."
        )
    rule = _RULES[parts[0].name]
    return tail, rule, spec_lib.bind(parts[0], rule, field)


def _stream(seed: int, stage: int) -> np.random.Generator:
    return np.random.default_rng([int(seed), stage])


def _check_labels(labels: Any, num_classes: int | None) -> tuple[np.ndarray, int]:
    labels = arrays.as_labels("labels", labels)
    if not len(labels):
        raise ValueError("labels is empty; at least one training sample is needed.")
    num_classes = int(labels.max()) + 1 if num_classes is None else num_classes
    checks.whole(1).check("num_classes", num_classes)
    arrays.check_labels("labels", labels, len(labels), num_classes)
    return labels, int(num_classes)


def _check_client_ids(client_ids: Any, labels: np.ndarray) -> np.ndarray:
    client_ids = np.asarray(client_ids)
    if client_ids.dtype.kind not in "iu" or client_ids.shape != labels.shape:
        raise ValueError(
            f"client_ids is {client_ids.dtype} {list(client_ids.shape)} but must be integers "
            f"{list(labels.shape)}, one per training sample."
        )
    return client_ids


def _assemble(
    clients: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
    num_clients: int,
    num_classes: int,
    labelled: np.ndarray = _NO_SAMPLES,
    unlabelled: np.ndarray = _NO_SAMPLES,
) -> Partition:
    """Sorts the samples ``ids`` by client and label into the arrays of a partition."""
    kept = clients >= 0
    cells = clients[kept].astype(np.int64) * num_classes + labels[kept]
    cell_counts = np.bincount(cells, minlength=num_clients * num_classes)
    class_counts = cell_counts.reshape(num_clients, num_classes).astype(np.int32)
    # Sorting unique keys (client, class, id) is faster than a stable sort of several arrays.
    span = int(ids[-1]) + 1
    cells *= span
    cells += ids[kept]
    cells.sort()
    offsets = np.zeros(num_clients + 1, np.int32)
    np.cumsum(class_counts.sum(axis=1), out=offsets[1:])
    order = (cells % span).astype(np.int32)
    return Partition(order, offsets, class_counts, labelled, unlabelled)
