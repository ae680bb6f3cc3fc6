"""Dividing a training set among clients: ``partition("dirichlet(beta=0.1)", labels, ...)``.

A specification is ``name`` or ``name(key=value, ...)``, with an optional long tail in front:
``longtail(if=100)+dirichlet(alpha=0.4)``. :func:`names` lists the rules. Always: no sample twice,
every client has at least one sample, samples are left out only where the rule says so, the same
seed gives the same partition.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_skew import errors
from fedjax_skew.data import label_skew, long_tail, partition_rules
from fedjax_skew.data import spec as spec_lib

_MIN_BETA, _MAX_BETA = 1e-6, 1e6


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """Who holds which training samples.

    Attributes:
        order: int32 ``[n]``, training sample ids sorted by (client, class, id).
        offsets: int32 ``[K + 1]``; client k holds ``order[offsets[k]:offsets[k + 1]]``.
        class_counts: int32 ``[K, C]``.
        labelled: int32 ``[a]``, the server's labelled class-balanced samples, maybe none.
        unlabelled: int32 ``[u]``, the server's unlabelled samples, maybe none.
    """

    order: np.ndarray
    offsets: np.ndarray
    class_counts: np.ndarray
    labelled: np.ndarray
    unlabelled: np.ndarray

    @functools.cached_property
    def hash(self) -> str:
        """The sha256 of all arrays, the same on every machine."""
        digest = hashlib.sha256()
        for field in dataclasses.fields(self):
            array = np.ascontiguousarray(getattr(self, field.name), "<i4")
            digest.update(f"{field.name}{array.shape}".encode())
            digest.update(array.data)
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class _Rule:
    function: Callable[..., np.ndarray]
    description: str
    parameters: tuple[spec_lib.Parameter, ...] = ()


_LONG_TAIL = (
    spec_lib.Parameter("if", float, low=1.0),
    spec_lib.Parameter("order", str, "index", choices=("index", "random")),
)
_RULES = {
    "iid": _Rule(partition_rules.iid, "random samples, equal sizes"),
    "power_law": _Rule(
        partition_rules.power_law,
        "random samples, the client of rank r has a size proportional to r^-power",
        (
            spec_lib.Parameter("power", float, 1.0, low=0.0, high=10.0),
            spec_lib.Parameter("min_size", int, 1, low=1),
        ),
    ),
    "quantity": _Rule(
        partition_rules.quantity,
        "sorted by label, cut into clients * alpha equal sets, alpha random sets per client "
        "(FedLC)",
        (spec_lib.Parameter("alpha", int, low=1),),
    ),
    "shards": _Rule(
        partition_rules.shards,
        "sorted by label, cut into clients * s shards of one label and unequal random size, s "
        "random shards "
        "per client (FedVLS)",
        (
            spec_lib.Parameter("s", int, low=1),
            spec_lib.Parameter("spread", float, 0.9, low=0.0, high=1.0),
        ),
    ),
    "dirichlet": _Rule(
        label_skew.dirichlet,
        "every class is divided in Dirichlet(beta) shares; with balance a client that holds its "
        "fair share gets no "
        "more of the next class; redrawn until every client has min_size samples",
        (
            spec_lib.Parameter("beta", float, low=_MIN_BETA, high=_MAX_BETA, aliases=("alpha",)),
            spec_lib.Parameter("balance", bool, True),
            spec_lib.Parameter("min_size", int, 10, low=1),
        ),
    ),
    "double": _Rule(
        label_skew.double,
        "every client holds a fixed number of labels; the holders of a label share it by the power "
        "law "
        "rank^-power (FedGR)",
        (
            spec_lib.Parameter("labels", int, low=1),
            spec_lib.Parameter("power", float, 1.0, low=0.0, high=10.0),
        ),
    ),
    "natural": _Rule(
        partition_rules.natural,
        "the dataset's own clients; with fewer clients a random choice of them (the rest is left "
        "out), or all of them "
        "joined at random if merge",
        (spec_lib.Parameter("merge", bool, False),),
    ),
    "counts": _Rule(
        partition_rules.counts,
        "a CSV file with one row per class and one column per client; samples it does not ask for "
        "are left out",
        (spec_lib.Parameter("path", str),),
    ),
}


def names() -> dict[str, str]:
    """Returns every partition, written with arguments and defaults, and its rule in one line."""
    listing = {
        spec_lib.signature(n, rule.parameters): rule.description for n, rule in _RULES.items()
    }
    tail = spec_lib.signature("longtail", _LONG_TAIL)
    listing[f"{tail}+<partition>"] = (
        "class c first keeps n_max * if^(-c / (classes - 1)) samples, the rest is left out; "
        "order=random "
        "shuffles which class is head and which tail"
    )
    return listing


def check(spec: str) -> None:
    """Checks a specification without data; raises ``ValueError`` if it is not one."""
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

    The server's samples are taken out first, then the long tail is cut, then the rest is divided.
    Each of the three has its own random stream, so the server's samples are the same for every
    partition.

    Args:
        spec: the specification, e.g. ``longtail(if=100)+dirichlet(alpha=0.4)``.
        labels: int ``[N]``, labels of the training samples.
        num_clients: number of clients.
        num_classes: number of classes.
        seed: draws everything.
        client_ids: int ``[N]`` natural clients, needed by ``natural``.
        labelled: fraction of the training data the server keeps with labels, class-balanced.
        unlabelled: fraction of the training data the server keeps without labels.

    Raises:
        ValueError: one sentence that says what is impossible and what is allowed.
    """
    tail, rule, arguments = _parse(spec)
    for field, value, low in (
        ("num_clients", num_clients, 1),
        ("num_classes", num_classes, 1),
        ("seed", seed, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
            raise ValueError(f"{field}={value!r} must be an integer of at least {low}.")
    labels = _check_labels(labels, num_classes)
    ids: np.ndarray
    server, held, ids = long_tail.server_splits(
        labels,
        num_classes=num_classes,
        labelled=labelled,
        unlabelled=unlabelled,
        rng=_stream(seed, 0),
    )
    if tail is not None:
        rng = _stream(seed, 1)
        sizes = np.bincount(labels[ids], minlength=num_classes)
        head_to_tail = rng.permutation(num_classes) if tail["order"] == "random" else None
        wanted = long_tail.profile(sizes, tail["if"], head_to_tail)
        ids = ids[long_tail.keep_per_class(labels[ids], wanted, rng)]
    if num_clients > len(ids):
        raise ValueError(
            f"num_clients={num_clients} is more than the {len(ids)} training samples there are to "
            "divide; every "
            "client needs at least one."
        )
    if client_ids is not None and np.shape(client_ids) != labels.shape:
        raise ValueError(
            f"client_ids has shape {np.shape(client_ids)} but labels have shape {labels.shape}."
        )
    natural = None if client_ids is None else np.asarray(client_ids)[ids]
    pool = partition_rules.Pool(labels[ids], int(num_clients), int(num_classes), natural)
    clients = rule.function(pool, _stream(seed, 2), **arguments)
    return _assemble(pool, clients, ids, server, held)


def _parse(text: str) -> tuple[dict[str, Any] | None, _Rule, dict[str, Any]]:
    field = "partition"
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"partition={text!r} must be a text such as 'dirichlet(beta=0.1)'.")
    parts = [spec_lib.parse(part, field) for part in spec_lib.split(text, "+", field)]
    tail = None
    if len(parts) > 1 and parts[0].name == "longtail":
        tail = spec_lib.bind(parts.pop(0), _LONG_TAIL, field)
    if parts[0].name not in _RULES and parts[0].name != "longtail":
        raise errors.unknown(field, parts[0].name, [*_RULES, "longtail"])
    if len(parts) > 1 or parts[0].name == "longtail":
        raise ValueError(
            f"partition={text!r} is not of the form <partition> or longtail(if=...)+<partition>, "
            "for example "
            "'longtail(if=100)+dirichlet(beta=0.5)'."
        )
    rule = _RULES[parts[0].name]
    return tail, rule, spec_lib.bind(parts[0], rule.parameters, field)


def _stream(seed: int, stage: int) -> np.random.Generator:
    return np.random.default_rng([int(seed), stage])


def _check_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0:
        raise ValueError(
            f"labels is {labels.dtype} {list(labels.shape)}; integers [samples] are needed."
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        bad = low if low < 0 else high
        raise ValueError(
            f"labels hold {bad}; with num_classes={num_classes} they must be in "
            f"0..{num_classes - 1}."
        )
    return labels.astype(np.int32, copy=False)


def _assemble(
    pool: partition_rules.Pool,
    clients: np.ndarray,
    ids: np.ndarray,
    server: np.ndarray,
    held: np.ndarray,
) -> Partition:
    kept = clients >= 0
    cells = clients[kept].astype(np.int64) * pool.num_classes + pool.labels[kept]
    cell_counts = np.bincount(cells, minlength=pool.num_clients * pool.num_classes)
    class_counts = cell_counts.reshape(pool.num_clients, pool.num_classes).astype(np.int32)
    # One sort of unique keys (client, class, id) is faster than a stable sort of several arrays.
    span = int(ids[-1]) + 1
    cells *= span
    cells += ids[kept]
    cells.sort()
    offsets = np.zeros(pool.num_clients + 1, np.int32)
    np.cumsum(class_counts.sum(axis=1), out=offsets[1:])
    return Partition((cells % span).astype(np.int32), offsets, class_counts, server, held)
