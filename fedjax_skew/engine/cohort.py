"""Who trains in a round, in which order, on which device."""

import jax
import jax.numpy as jnp

from fedjax_skew.engine.local import ClientSlot
from fedjax_skew.engine.shuffle import permute


def sample_cohort(keys: jax.Array, num_clients: int, cohort_size: int) -> jax.Array:
    """Distinct client numbers ``[S, M]``, drawn uniformly for each of the keys ``[S]``."""
    if cohort_size == num_clients:
        return jnp.tile(jnp.arange(num_clients, dtype=jnp.int32), (keys.shape[0], 1))
    positions = jnp.arange(cohort_size)
    return jax.vmap(lambda key: permute(key, positions, num_clients))(keys)


def assign_clients(
    cohort: jax.Array, num_steps: jax.Array, num_devices: int, clients_per_chunk: int
) -> tuple[ClientSlot, jax.Array, jax.Array]:
    """Sorts all clients of all seeds by work and deals them to chunks and devices.

    Clients of similar work share a chunk, so the chunk's common trip count wastes little. The
    largest chunk left goes to the device with the least work that still has a place.

    Args:
        cohort: int32 ``[S, M]`` client numbers.
        num_steps: int32 ``[S, M]`` local steps.
        num_devices: D.
        clients_per_chunk: upper bound of the chunk size c.

    Returns:
        Items ``[D, R, c]``, their flat positions ``[D, R, c]`` in the cohort (``S * M`` for
        padding), and the place ``[S * M]`` of each cohort member in the flattened items.
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


def _deal(spec: jax.Array, num_devices: int, rows: int) -> jax.Array:
    """Place ``device * rows + row`` of each chunk, given chunks in order of falling ``work``."""
    if num_devices == 1:
        return jnp.arange(rows)

    def give(carry, cost):
        load, used = carry
        device = jnp.argmin(jnp.where(used < rows, load, jnp.inf))
        place = device * rows + used[device]
        return (load.at[device].add(cost), used.at[device].add(1)), place

    empty = (jnp.zeros(num_devices), jnp.zeros(num_devices, jnp.int32))
    return jax.lax.scan(give, empty, spec.astype(jnp.float32))[1]
