"""Partitions drawn class by class: Dirichlet shares, and the double imbalance of FedGR."""

import numpy as np
from absl import logging

from fedjax_skew.data import apportion, partition_rules

# A redraw of a small problem is cheap, of a large one hopeless: at most this many draws, and this
# many numbers drawn in all. Counts, not seconds, so that the result never depends on the machine.
_MAX_DRAWS = 200
_MAX_NUMBERS = 2_000_000


def dirichlet(
    pool: partition_rules.Pool,
    rng: np.random.Generator,
    beta: float,
    balance: bool,
    min_size: int,
) -> np.ndarray:
    """Every class is divided among the clients in shares drawn from a symmetric Dirichlet(beta).

    With ``balance``, classes are divided in the order of their numbers and a client that already
    holds ``N / K`` samples or more gets nothing of the next class. The whole draw is repeated until
    every client holds ``min_size`` samples; if no draw within the limit does, the one with the
    largest smallest client is repaired by :func:`apportion.fill_short_clients`, which is logged.
    """
    partition_rules.check_minimum(pool, min_size)
    class_sizes = np.bincount(pool.labels, minlength=pool.num_classes)
    draws = max(1, min(_MAX_DRAWS, _MAX_NUMBERS // (pool.num_clients * pool.num_classes)))
    best, best_size = None, -1
    for _ in range(draws):
        table = _dirichlet_table(class_sizes, pool.num_clients, beta, balance, rng)
        smallest = int(table.sum(axis=0).min())
        if smallest > best_size:
            best, best_size = table, smallest
        if smallest >= min_size:
            break
    assert best is not None
    clients = partition_rules.deal_counts(pool, rng, best)
    return _repair(pool, clients, min_size, f"dirichlet(beta={beta:g}) in {draws} draws", rng)


def _dirichlet_table(
    class_sizes: np.ndarray, num_clients: int, beta: float, balance: bool, rng: np.random.Generator
) -> np.ndarray:
    table = np.zeros((len(class_sizes), num_clients), np.int32)
    sizes = np.zeros(num_clients, np.int64)
    fair = class_sizes.sum() / num_clients
    for c, total in enumerate(class_sizes):
        if total == 0:
            continue
        # Normalised gammas are Dirichlet. Their logarithm is drawn (a gamma of beta + 1 times a
        # power of a uniform number), because at small beta the gammas themselves all underflow to
        # zero.
        weights = np.log(rng.standard_gamma(beta + 1, num_clients))
        weights -= rng.standard_exponential(num_clients) / beta
        if balance:
            weights[sizes >= fair] = -np.inf
        shares = np.cumsum(np.exp(weights - weights.max()))
        cuts = np.floor(shares / shares[-1] * total).astype(np.int64)
        table[c] = np.diff(cuts, prepend=0)
        sizes += table[c]
    return table


def double(
    pool: partition_rules.Pool, rng: np.random.Generator, labels: int, power: float
) -> np.ndarray:
    """A fixed number of labels per client, and a power law of sizes inside every label.

    Labels are dealt like cards: a shuffled deck of all classes is cut into hands of ``labels``, one
    per client, then the next deck; what the first deck leaves over comes first in the second, so
    every class is held by somebody as soon as ``clients * labels >= classes``. The holders of a
    class, in random order, share all of its samples in proportion to ``rank^-power``, at least one
    each. A client therefore holds exactly ``labels`` labels (fewer only where a class has fewer
    samples than holders) of very different sizes, and the whole pool is divided; only a class that
    no client can hold is left out, which is logged.
    """
    class_sizes = np.bincount(pool.labels, minlength=pool.num_classes)
    present = np.flatnonzero(class_sizes)
    if labels > len(present):
        raise ValueError(
            f"labels={labels} of double is more than the {len(present)} classes that have samples."
        )
    hands = present[_deal_cards(pool.num_clients, len(present), labels, rng)]
    holder_classes = hands.ravel()
    holders = np.repeat(np.arange(pool.num_clients, dtype=np.int32), labels)
    shuffled = rng.permutation(len(holders))
    shuffled = shuffled[np.argsort(holder_classes[shuffled], kind="stable")]
    ends = np.cumsum(np.bincount(holder_classes, minlength=pool.num_classes))
    grouped = apportion.group_by_class(pool.labels, rng)
    clients = np.full(len(pool.labels), -1, np.int32)
    sample_ends = np.cumsum(class_sizes)
    for c in present:
        owners = holders[shuffled[ends[c - 1] if c else 0 : ends[c]]][: class_sizes[c]]
        if len(owners):
            weights = np.arange(1, len(owners) + 1, dtype=np.float64) ** -power
            parts = apportion.apportion(int(class_sizes[c]), weights, at_least=1)
            clients[grouped[sample_ends[c] - class_sizes[c] : sample_ends[c]]] = np.repeat(
                owners, parts
            )
    unheld = np.setdiff1d(present, holder_classes)
    if len(unheld):
        logging.warning(
            "partition double: %d clients of %d labels cannot hold all classes; the samples of "
            "classes %s are "
            "left out.",
            pool.num_clients,
            labels,
            ", ".join(map(str, unheld[:20])),
        )
    return _repair(pool, clients, 1, f"double(labels={labels})", rng)


def _deal_cards(num_clients: int, cards: int, hand: int, rng: np.random.Generator) -> np.ndarray:
    """Returns ``[num_clients, hand]`` card numbers, no card twice in a hand."""
    hands_per_deck = cards // hand
    decks = -(-num_clients // hands_per_deck)
    order = rng.permuted(np.tile(np.arange(cards, dtype=np.int32), (decks, 1)), axis=1)
    dealt = hands_per_deck * hand
    if decks > 1 and dealt < cards:
        left = order[0, dealt:]
        order[1] = np.concatenate([left, order[1][~np.isin(order[1], left)]])
    hands = order[:, :dealt].reshape(-1, hand)[:num_clients]
    # A client's number must not say which deck it was dealt from.
    return rng.permutation(hands)


def _repair(
    pool: partition_rules.Pool,
    clients: np.ndarray,
    minimum: int,
    what: str,
    rng: np.random.Generator,
) -> np.ndarray:
    if np.count_nonzero(clients >= 0) < minimum * pool.num_clients:
        raise ValueError(
            f"partition: {what} leaves fewer samples than num_clients={pool.num_clients} clients "
            "need."
        )
    clients, moved = apportion.fill_short_clients(
        clients, pool.labels, pool.num_clients, minimum, rng
    )
    if moved:
        logging.warning(
            "partition: %s did not give every client %d samples, so %d of %d samples were moved "
            "from the largest "
            "clients to the smallest.",
            what,
            minimum,
            moved,
            len(clients),
        )
    return clients
