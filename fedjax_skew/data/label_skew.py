"""Partition rules that draw class by class: Dirichlet shares, and FedGR's double imbalance."""

from typing import Annotated, Literal

import numpy as np
from absl import logging

from fedjax_skew.checks import number, whole
from fedjax_skew.data import apportion, partition_rules
from fedjax_skew.data.partition_rules import Pool
from fedjax_skew.data.spec import also

Beta = Annotated[float, number(1e-6, 1e6), also("alpha")]
Rounding = Literal["largest_remainder", "published"]

# Limits are counts instead of times, so that results do not depend on the machine.
_MAX_NUMBERS = 2_000_000
_MAX_DRAWS = 200
_MAX_GROUP_DRAWS = 5_000


def dirichlet(
    pool: Pool,
    rng: np.random.Generator,
    *,
    beta: Beta,
    balance: bool = True,
    min_size: Annotated[int, whole(1)] = 10,
    rounding: Rounding = "largest_remainder",
) -> np.ndarray:
    """Every class is divided in Dirichlet(beta) shares; with balance, a client that has its fair
    share receives no further classes; redrawn until every client has min_size samples.

    Classes are divided in the order of their indices, and the fair share is ``N / K`` samples. If
    no draw within the limit gives every client ``min_size`` samples, the draw whose smallest client
    is largest is repaired by :func:`apportion.fill_short_clients`, and a warning is logged.

    Shares are rounded by the method of largest remainders, so that all clients are treated equally.
    With ``rounding=published``, the cumulative shares are rounded down, as in the published code of
    several papers: the last client then receives the remainder of every class, and with many
    clients it holds far more classes than the others.
    """
    partition_rules.check_minimum(pool, min_size)
    class_sizes = np.bincount(pool.labels, minlength=pool.num_classes)
    draws = max(1, min(_MAX_DRAWS, _MAX_NUMBERS // (pool.num_clients * pool.num_classes)))
    table = _draw(class_sizes, pool.num_clients, beta, balance, rounding, min_size, draws, rng)
    clients = partition_rules.deal_counts(pool, rng, table)
    return _repair(pool, clients, min_size, f"dirichlet(beta={beta:g}) in {draws} draws", rng)


def grouped_dirichlet(
    pool: Pool,
    rng: np.random.Generator,
    *,
    beta: Beta,
    group_size: Annotated[int, whole(1)] = 10,
) -> np.ndarray:
    """Dirichlet(beta) shares within random blocks of samples, one block per group of clients, then
    divided into equal sizes (CReFF, FEDIC, FedLF, FedLC-LT).

    The shuffled samples are divided into one block per ``group_size`` clients, in proportion to the
    number of clients of the group. Within a block, every class is divided among the group by
    :func:`dirichlet` with the balance rule and the published rounding, which is redrawn until the
    smallest client has at least half of the mean. The lists of all clients, each sorted by class,
    are concatenated in client order and divided into pieces whose sizes differ by at most one. A
    client therefore also receives some of its neighbour's samples.
    """
    shuffled = rng.permutation(len(pool.labels)).astype(np.int32)
    step = len(shuffled) * group_size // pool.num_clients
    joined: list[np.ndarray] = []
    for first in range(0, pool.num_clients, group_size):
        members = min(group_size, pool.num_clients - first)
        last = first + members == pool.num_clients
        start = first // group_size * step
        block = shuffled[start : None if last else start + step]
        block = block[np.argsort(pool.labels[block], kind="stable")]
        class_sizes = np.bincount(pool.labels[block], minlength=pool.num_classes)
        table = _draw_group(class_sizes, members, beta, rng)
        owners = np.concatenate([np.repeat(np.arange(members), row) for row in table])
        joined.append(block[np.argsort(owners, kind="stable")])
    clients = np.empty(len(shuffled), np.int32)
    sizes = partition_rules.equal_sizes(len(shuffled), pool.num_clients)
    clients[np.concatenate(joined)] = np.repeat(np.arange(pool.num_clients), sizes)
    return clients


def _draw_group(
    class_sizes: np.ndarray, members: int, beta: float, rng: np.random.Generator
) -> np.ndarray:
    """Draws the table of one block until its smallest client has at least half of the mean."""
    minimum = int(class_sizes.sum()) // (2 * members)
    draws = max(1, min(_MAX_GROUP_DRAWS, _MAX_NUMBERS // (members * len(class_sizes))))
    table = _draw(class_sizes, members, beta, True, "published", minimum, draws, rng)
    smallest = int(table.sum(axis=0).min())
    if smallest < minimum:
        logging.warning(
            "partition: grouped_dirichlet(beta=%g) did not give every client of a group half of "
            "the mean, %d samples, in %d draws; the best draw gives %d.",
            beta,
            minimum,
            draws,
            smallest,
        )
    return table


def _draw(
    class_sizes: np.ndarray,
    num_clients: int,
    beta: float,
    balance: bool,
    rounding: Rounding,
    min_size: int,
    draws: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draws tables until the smallest client has ``min_size``; returns the best one drawn."""
    best, best_size = np.zeros((0, 0), np.int32), -1
    for _ in range(draws):
        table = _dirichlet_table(class_sizes, num_clients, beta, balance, rounding, rng)
        smallest = int(table.sum(axis=0).min())
        if smallest > best_size:
            best, best_size = table, smallest
        if smallest >= min_size:
            break
    return best


def _dirichlet_table(
    class_sizes: np.ndarray,
    num_clients: int,
    beta: float,
    balance: bool,
    rounding: Rounding,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draws the number of samples of each class and client, int32 ``[C, K]``."""
    table = np.zeros((len(class_sizes), num_clients), np.int32)
    sizes = np.zeros(num_clients, np.int64)
    fair = class_sizes.sum() / num_clients
    for c, total in enumerate(class_sizes):
        if total == 0:
            continue
        # Normalised gamma variates are Dirichlet. Their logarithms are drawn, as a gamma(beta + 1)
        # variate times a power of a uniform one, because they underflow to zero for small beta.
        weights = np.log(rng.standard_gamma(beta + 1, num_clients))
        weights -= rng.standard_exponential(num_clients) / beta
        if balance:
            weights[sizes >= fair] = -np.inf
        weights = np.exp(weights - weights.max())
        if rounding == "published":
            shares = np.cumsum(weights)
            cuts = np.floor(shares / shares[-1] * total).astype(np.int64)
            table[c] = np.diff(cuts, prepend=0)
        else:
            table[c] = apportion.apportion(int(total), weights)
        sizes += table[c]
    return table


def double(
    pool: Pool,
    rng: np.random.Generator,
    *,
    labels: Annotated[int, whole(1)],
    power: Annotated[float, number(0, 10)] = 1.0,
) -> np.ndarray:
    """Every client holds a fixed number of labels; the holders of a label share it by the power
    law rank^-power (FedGR).

    Labels are dealt like cards: a shuffled deck of all classes is divided into hands of ``labels``
    classes, one per client, followed by further decks. The remainder of the first deck comes first
    in the second one, so that every class is held by some client if ``clients * labels >=
    classes``. The holders of a class, in random order, share all of its samples in proportion to
    ``rank^-power``, with at least one sample each. A client therefore holds exactly ``labels``
    labels of very different sizes, or fewer if a class has fewer samples than holders, and the
    whole pool is divided. Only classes that no client can hold are discarded, which is logged.
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
            samples = grouped[sample_ends[c] - class_sizes[c] : sample_ends[c]]
            clients[samples] = np.repeat(owners, parts)
    unheld = np.setdiff1d(present, holder_classes)
    if len(unheld):
        logging.warning(
            "partition: %d clients of double(labels=%d) cannot hold all classes; the samples of "
            "classes %s are discarded.",
            pool.num_clients,
            labels,
            ", ".join(map(str, unheld[:20])),
        )
    return _repair(pool, clients, 1, f"double(labels={labels})", rng)


def _deal_cards(num_clients: int, cards: int, hand: int, rng: np.random.Generator) -> np.ndarray:
    """Returns card indices ``[num_clients, hand]``, which are distinct within each hand."""
    hands_per_deck = cards // hand
    decks = -(-num_clients // hands_per_deck)
    order = rng.permuted(np.tile(np.arange(cards, dtype=np.int32), (decks, 1)), axis=1)
    dealt = hands_per_deck * hand
    if decks > 1 and dealt < cards:
        left = order[0, dealt:]
        order[1] = np.concatenate([left, order[1][~np.isin(order[1], left)]])
    hands = order[:, :dealt].reshape(-1, hand)[:num_clients]
    # The index of a client must not depend on the deck from which its hand was dealt.
    return rng.permutation(hands)


def _repair(
    pool: Pool, clients: np.ndarray, minimum: int, what: str, rng: np.random.Generator
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
            "partition: %s did not give every client %d samples; %d of %d samples were moved from "
            "the largest clients to the smallest.",
            what,
            minimum,
            moved,
            len(clients),
        )
    return clients
