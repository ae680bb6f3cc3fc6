"""Partition rules that do not draw class by class.

A rule is a function ``(pool, rng, *, ...)`` that returns the client of every sample of the pool,
int32 ``[n]``, or -1 for a sample without a client. Its keyword-only parameters are the arguments of
a specification, and the first paragraph of its docstring is shown in listings. Equal states of the
generator give equal partitions.
"""

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from fedjax_skew.checks import number, text, whole
from fedjax_skew.data import apportion, client_lists


class Pool(NamedTuple):
    """The samples to divide.

    Attributes:
        labels: int32 ``[n]``.
        ids: int32 ``[n]``, ascending positions of the samples in the training set.
        num_clients: number of clients, at most ``n``.
        num_classes: number of classes.
        num_samples: number of samples of the training set, at least ``n``.
        client_ids: int ``[n]`` natural clients, or None.
    """

    labels: np.ndarray
    ids: np.ndarray
    num_clients: int
    num_classes: int
    num_samples: int
    client_ids: np.ndarray | None


def iid(pool: Pool, rng: np.random.Generator) -> np.ndarray:
    """Random samples, with equal sizes of all clients."""
    return _deal(pool, rng, equal_sizes(len(pool.labels), pool.num_clients))


def power_law(
    pool: Pool,
    rng: np.random.Generator,
    *,
    power: Annotated[float, number(0, 10)] = 1.0,
    min_size: Annotated[int, whole(1)] = 1,
) -> np.ndarray:
    """Random samples; the client of rank r has a size proportional to r^-power."""
    check_minimum(pool, min_size)
    ranks = np.arange(1, pool.num_clients + 1, dtype=np.float64)
    sizes = apportion.apportion(len(pool.labels), ranks**-power, at_least=min_size)
    return _deal(pool, rng, rng.permutation(sizes))


def quantity(
    pool: Pool, rng: np.random.Generator, *, alpha: Annotated[int, whole(1)]
) -> np.ndarray:
    """Samples sorted by label and divided into clients * alpha equal sets, alpha per client
    (FedLC).
    """
    pieces = _check_pieces(pool, "alpha", alpha)
    sizes = equal_sizes(len(pool.labels), pieces)
    return _deal_pieces(pool, rng, sizes, alpha)


def shards(
    pool: Pool,
    rng: np.random.Generator,
    *,
    s: Annotated[int, whole(1)],
    spread: Annotated[float, number(0, 1)] = 0.9,
) -> np.ndarray:
    """Samples sorted by label and divided into clients * s shards of one label and of random size,
    s random shards per client (FedVLS).

    A class is divided into a number of shards proportional to its size, at least one, so that a
    shard has one label and a client has at most ``s`` labels. If there are fewer shards than
    classes, the sorted samples are divided without regard to classes. Shard sizes within a class
    are proportional to uniform draws from ``1 - spread`` to ``1 + spread``.
    """
    pieces = _check_pieces(pool, "s", s)
    counts = np.bincount(pool.labels, minlength=pool.num_classes)
    counts = counts[counts > 0] if pieces >= np.count_nonzero(counts) else np.array([counts.sum()])
    cuts = np.ones(len(counts), np.int64)
    if pieces > len(counts):
        # Proportional to the size minus one, so that no class has more shards than samples.
        cuts += apportion.apportion(pieces - len(counts), counts - 1.0)
    sizes = [
        apportion.apportion(int(n), rng.uniform(1 - spread, 1 + spread, k), at_least=1)
        for n, k in zip(counts, cuts, strict=True)
    ]
    return _deal_pieces(pool, rng, np.concatenate(sizes), s)


def natural(pool: Pool, rng: np.random.Generator, *, merge: bool = False) -> np.ndarray:
    """The natural clients of the dataset; if num_clients is smaller, a random subset of them (the
    samples of the others are discarded), or with merge all of them merged at random.
    """
    if pool.client_ids is None:
        raise ValueError(
            "partition='natural' needs a dataset with natural clients (synthetic, femnist, leaf, "
            "or arrays with client_ids)."
        )
    found, place = np.unique(pool.client_ids, return_inverse=True)
    if pool.num_clients > len(found):
        raise ValueError(
            f"num_clients={pool.num_clients} is more than the {len(found)} natural clients of the "
            f"dataset; partition='natural' allows at most {len(found)}."
        )
    if pool.num_clients == len(found):
        return place.astype(np.int32)
    order = rng.permutation(len(found))
    owner = np.full(len(found), -1, np.int32)
    if merge:
        owner[order] = np.arange(len(found)) % pool.num_clients
    else:
        owner[np.sort(order[: pool.num_clients])] = np.arange(pool.num_clients)
    return owner[place]


def counts(
    pool: Pool, rng: np.random.Generator, *, path: Annotated[str, text(empty=False)]
) -> np.ndarray:
    """Random samples, whose numbers are given by a CSV file with one row per class and one column
    per client; the other samples are discarded.
    """
    table = _read_counts(pool, path)
    available = np.bincount(pool.labels, minlength=pool.num_classes)
    wanted = table.sum(axis=1)
    if (wanted > available).any():
        c = int(np.argmax(wanted > available))
        raise ValueError(
            f"counts: {path} asks for {wanted[c]} samples of class {c} but there are only "
            f"{available[c]}."
        )
    if (table.sum(axis=0) == 0).any():
        k = int(np.argmin(table.sum(axis=0)))
        raise ValueError(
            f"counts: {path} gives no sample to client {k}; every client needs at least one."
        )
    return deal_counts(pool, rng, table)


def file(
    pool: Pool, rng: np.random.Generator, *, path: Annotated[str, text(empty=False)]
) -> np.ndarray:
    """Exactly the samples that a file lists for every client: JSON with one list of training
    sample indices per client, or .npz with one array per client (or order and offsets).

    Samples that are not in any list are discarded, as are listed samples that the server has taken
    or that the long tail has removed.
    """
    lists = client_lists.read(path)
    if len(lists) != pool.num_clients:
        raise ValueError(
            f"num_clients={pool.num_clients} does not match partition file {path!r}, which lists "
            f"{len(lists)} clients."
        )
    clients = client_lists.assign(lists, pool.num_samples, f"partition file {path!r}")[pool.ids]
    sizes = np.bincount(clients[clients >= 0], minlength=pool.num_clients)
    if (sizes == 0).any():
        raise ValueError(
            f"partition file {path!r} leaves client {int(np.argmin(sizes))} without samples, "
            "because the server or the long tail has removed all of them."
        )
    return clients


def deal_counts(pool: Pool, rng: np.random.Generator, table: np.ndarray) -> np.ndarray:
    """Assigns ``table[c, k]`` random samples of class c to client k, and the others to none."""
    grouped = apportion.group_by_class(pool.labels, rng)
    ends = np.cumsum(np.bincount(pool.labels, minlength=pool.num_classes))
    clients = np.full(len(pool.labels), -1, np.int32)
    ids = np.arange(pool.num_clients, dtype=np.int32)
    for c, end in enumerate(ends):
        start = 0 if c == 0 else ends[c - 1]
        owners = np.repeat(ids, table[c])
        clients[grouped[start : min(start + len(owners), end)]] = owners
    return clients


def _deal(pool: Pool, rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
    clients = np.repeat(np.arange(pool.num_clients, dtype=np.int32), sizes)
    rng.shuffle(clients)
    return clients


def _deal_pieces(pool: Pool, rng: np.random.Generator, sizes: np.ndarray, each: int) -> np.ndarray:
    owner = rng.permutation(np.repeat(np.arange(pool.num_clients, dtype=np.int32), each))
    clients = np.empty(len(pool.labels), np.int32)
    clients[apportion.group_by_class(pool.labels, rng)] = np.repeat(owner, sizes)
    return clients


def equal_sizes(total: int, parts: int) -> np.ndarray:
    """Returns the sizes of ``parts`` pieces of ``total``; the first ones may be larger by one."""
    return np.full(parts, total // parts) + (np.arange(parts) < total % parts)


def _check_pieces(pool: Pool, field: str, each: int) -> int:
    if pool.num_clients * each > len(pool.labels):
        raise ValueError(
            f"{field}={each} for num_clients={pool.num_clients} makes {pool.num_clients * each} "
            f"sets of samples but there are only {len(pool.labels)} samples."
        )
    return pool.num_clients * each


def check_minimum(pool: Pool, min_size: int) -> None:
    """Raises if no partition can give every client ``min_size`` samples."""
    if pool.num_clients * min_size > len(pool.labels):
        raise ValueError(
            f"min_size={min_size} for num_clients={pool.num_clients} needs "
            f"{pool.num_clients * min_size} samples but there are only {len(pool.labels)}; "
            f"min_size can be at most {len(pool.labels) // pool.num_clients}."
        )


def _read_counts(pool: Pool, path: str) -> np.ndarray:
    """Reads a matrix whose values are separated by commas or blanks; ``#`` starts a comment."""
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, ValueError) as error:
        raise ValueError(
            f"counts: path={path!r} cannot be read ({getattr(error, 'strerror', None) or error}); "
            "it must be a CSV file with one row per class and one column per client."
        ) from None
    rows = [line.split("#")[0].replace(",", " ").split() for line in text.splitlines()]
    rows = [row for row in rows if row]
    shape = f"{pool.num_classes} rows (classes) of {pool.num_clients} numbers (clients)"
    if len(rows) != pool.num_classes or any(len(row) != pool.num_clients for row in rows):
        widths = sorted({len(row) for row in rows})
        raise ValueError(
            f"counts: {path} has {len(rows)} rows of {widths} numbers; needed: {shape}."
        )
    if not all(
        value.isascii() and value.isdigit() and len(value) < 10 for row in rows for value in row
    ):
        raise ValueError(
            f"counts: {path} must hold whole numbers that are not negative; needed: {shape}."
        )
    return np.array(rows).astype(np.int64)
