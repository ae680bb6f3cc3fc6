"""Division into whole numbers, and the repair of partitions with clients that are too small."""

import numpy as np


def apportion(total: int, weights: np.ndarray, at_least: int = 0) -> np.ndarray:
    """Divides ``total`` into whole parts proportional to ``weights``, by largest remainders.

    A larger weight never receives a smaller part.

    Args:
        total: the number to divide, at least ``at_least * len(weights)``.
        weights: float ``[P]``, non-negative and not all zero.
        at_least: lower bound of every part, which is assigned before the rest is divided.

    Returns:
        int64 ``[P]`` with the sum ``total``.
    """
    free = total - at_least * len(weights)
    quota = weights / weights.sum() * free
    parts = np.floor(quota).astype(np.int64)
    rest = int(free - parts.sum())
    if rest > 0:
        parts[np.argsort(parts - quota, kind="stable")[:rest]] += 1
    return parts + at_least


def group_by_class(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns sample positions sorted by label, in random order within each label."""
    shuffled = rng.permutation(len(labels)).astype(np.int32)
    keys = labels[shuffled]
    if len(keys) and keys.max() < 2**15:
        keys = keys.astype(np.int16)  # Numpy sorts 16-bit keys by radix, several times faster.
    return shuffled[np.argsort(keys, kind="stable")]


def fill_short_clients(
    clients: np.ndarray,
    labels: np.ndarray,
    num_clients: int,
    minimum: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, int]:
    """Moves samples from the largest clients to those with fewer than ``minimum``.

    The largest clients are reduced to a common size, by no more than necessary. The moved samples
    are drawn at random and are distributed in the order of their labels, so that a recipient
    receives few labels.

    Args:
        clients: int32 ``[n]``, the client of every sample, or -1 for samples without a client.
        labels: int ``[n]``.
        num_clients: number of clients.
        minimum: smallest allowed size; ``num_clients * minimum`` must not exceed the number of
            samples.
        rng: draws the samples to move.

    Returns:
        The new clients, and the number of moved samples.
    """
    sizes = np.bincount(clients[clients >= 0], minlength=num_clients)
    short = np.maximum(minimum - sizes, 0)
    need = int(short.sum())
    if need == 0:
        return clients, 0
    gift = _gifts(sizes, need, minimum)
    donors = np.flatnonzero((clients >= 0) & (gift[clients] > 0))
    donors = donors[rng.permutation(len(donors))]
    donors = donors[np.argsort(clients[donors], kind="stable")]
    owners = clients[donors]
    first = np.searchsorted(owners, owners)
    moved = donors[np.arange(len(donors)) - first < gift[owners]]
    moved = moved[np.argsort(labels[moved], kind="stable")]
    clients = clients.copy()
    clients[moved] = np.repeat(np.arange(num_clients, dtype=np.int32), short)
    return clients, need


def _gifts(sizes: np.ndarray, need: int, minimum: int) -> np.ndarray:
    """Returns the number of samples that each client gives, so that givers end with equal sizes."""
    low, high = minimum, int(sizes.max())
    while low < high:  # Finds the largest common size that frees enough samples.
        level = (low + high + 1) // 2
        if np.maximum(sizes - level, 0).sum() >= need:
            low = level
        else:
            high = level - 1
    gift = np.maximum(sizes - low, 0)
    spare = int(gift.sum()) - need
    gift[np.flatnonzero(gift)[:spare]] -= 1
    return gift
