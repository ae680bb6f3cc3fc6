"""The cohort of a round: sampling, local steps, and assignment to chunks and devices."""

import jax
import jax.numpy as jnp

from fedjax_skew.engine.keys import Stream, stream_keys
from fedjax_skew.engine.local import ClientSlot
from fedjax_skew.engine.shuffle import permute


def sample_cohort(
    keys: jax.Array,
    num_clients: int,
    cohort_size: int,
    log_weights: jax.Array | None = None,
) -> jax.Array:
    """Samples distinct client indices ``[S, M]``, independently for each of the keys ``[S]``.

    Args:
        keys: PRNG keys, one per seed.
        num_clients: the number of clients K.
        cohort_size: the size of the cohort M.
        log_weights: float32 ``[K]``. Clients are drawn one after another, with probabilities
            proportional to the weights of the remaining clients. Clients of weight 0 (``-inf``) are
            drawn last. None draws uniformly.
    """
    if log_weights is not None:
        noise = jax.vmap(lambda key: jax.random.gumbel(key, (num_clients,)))(keys)
        return jax.lax.top_k(log_weights + noise, cohort_size)[1].astype(jnp.int32)
    if cohort_size == num_clients:
        return jnp.tile(jnp.arange(num_clients, dtype=jnp.int32), (keys.shape[0], 1))
    positions = jnp.arange(cohort_size)
    return jax.vmap(lambda key: permute(key, positions, num_clients))(keys)


def weights_of_round(log_weights: jax.Array | None, round_: jax.Array) -> jax.Array | None:
    """Returns row ``round_`` of ``log_weights [T, K]``, repeating the rows after the last one."""
    return None if log_weights is None else log_weights[round_ % log_weights.shape[0]]


def steps_taken(
    num_steps: jax.Array,
    cohort: jax.Array,
    keys: jax.Array,
    round_: jax.Array,
    *,
    dropout: float,
    stragglers: float,
) -> jax.Array:
    """Returns the number of local steps that each client takes; 0 for one that drops out.

    Every draw is a function of (seed, round, client).

    Args:
        num_steps: int32 ``[S, M]``, the number of requested steps.
        cohort: int32 ``[S, M]`` client indices.
        keys: raw keys ``[S, 2]`` of the seeds.
        round_: int32, the index of the round.
        dropout: the probability that a client drops out.
        stragglers: the probability that a client takes fewer steps, whose number is drawn uniformly
            from 1 to ``num_steps - 1``.
    """
    if not dropout and not stragglers:
        return num_steps

    def draw(key, client):
        return jax.random.uniform(jax.random.fold_in(key, client), (3,))

    streams = stream_keys(keys, Stream.DROPOUT, round_)
    lost, late, share = jnp.moveaxis(
        jax.vmap(jax.vmap(draw, in_axes=(None, 0)))(streams, cohort), -1, 0
    )
    fewer = jnp.maximum(1 + jnp.floor(share * (num_steps - 1)).astype(jnp.int32), 1)
    num_steps = jnp.where(late < stragglers, fewer, num_steps)
    return jnp.where(lost < dropout, 0, num_steps)


def assign_clients(
    cohort: jax.Array, num_steps: jax.Array, num_devices: int, clients_per_chunk: int
) -> tuple[ClientSlot, jax.Array, jax.Array]:
    """Sorts all clients of all seeds by work and assigns them to chunks and devices.

    Clients with similar work share a chunk, so that few steps of the chunk's common loop are
    padding. Chunks are assigned in order of decreasing work, each to the device with the least work
    that has a free row.

    Args:
        cohort: int32 ``[S, M]`` client indices.
        num_steps: int32 ``[S, M]`` local steps.
        num_devices: the number of devices D.
        clients_per_chunk: upper bound of the chunk size c.

    Returns:
        Items ``[D, R, c]``, their flat positions ``[D, R, c]`` in the cohort (``S * M`` for
        padding), and the position ``[S * M]`` of each cohort member in the flattened items.
    """
    num_seeds, size = cohort.shape
    total = num_seeds * size
    rows = -(-total // num_devices)
    chunk = min(clients_per_chunk, rows)
    rows = -(-rows // chunk)
    padded = num_devices * rows * chunk

    by_work = jnp.argsort(-num_steps.reshape(-1), stable=True).astype(jnp.int32)
    by_work = jnp.pad(by_work, (0, padded - total), constant_values=total).reshape(-1, chunk)
    longest = jnp.append(num_steps.reshape(-1), 0)[by_work[:, 0]]
    slots = jnp.zeros_like(by_work).at[_deal(longest, num_devices, rows)].set(by_work)
    slots = slots.reshape(num_devices, rows, chunk)

    def pick(values, fill):
        return jnp.append(values.reshape(-1), fill)[slots]

    seeds = jnp.repeat(jnp.arange(num_seeds, dtype=jnp.int32), size)
    items = ClientSlot(pick(seeds, 0), pick(cohort, 0), pick(num_steps, 0))
    places = jnp.zeros(total + 1, jnp.int32).at[slots.reshape(-1)].set(jnp.arange(padded))
    return items, slots, places[:total]


def _deal(work: jax.Array, num_devices: int, rows: int) -> jax.Array:
    """Returns the position ``device * rows + row`` of each chunk, given decreasing ``work``."""
    if num_devices == 1:
        return jnp.arange(rows)

    def give(carry, cost):
        load, used = carry
        device = jnp.argmin(jnp.where(used < rows, load, jnp.inf))
        place = device * rows + used[device]
        return (load.at[device].add(cost), used.at[device].add(1)), place

    empty = (jnp.zeros(num_devices), jnp.zeros(num_devices, jnp.int32))
    return jax.lax.scan(give, empty, work.astype(jnp.float32))[1]
