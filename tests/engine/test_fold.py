"""A client's pass over its own data."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_skew.engine.local import Broadcast, ClientSlot, make_client
from fedjax_skew.simulation import problem as problems


def test_a_fold_visits_every_sample_once_in_stored_or_shuffled_order_augmented_on_request(
    tiny_config, blobs
):
    problem = problems.build(tiny_config(), dataset=blobs)
    data = jax.tree.map(jnp.asarray, problem.data)
    sent = Broadcast(None, None, None, jnp.float32(0.1), jax.random.key(0))
    offsets = np.asarray(data.offsets[0])
    size = int(offsets[3] - offsets[2])

    def visited(key, batches=0, augment=False):
        item = ClientSlot(jnp.int32(0), jnp.int32(2), jnp.int32(1))
        spec = problem.phases[0].spec.local
        spec = dataclasses.replace(spec, augment=lambda x, key: x + 100)
        client = make_client(spec, data, sent, None, item, jnp.int32(0), jnp.int32(40))

        def record(carry, batch):
            seen, count = carry
            at = jnp.where(batch.where, count + jnp.arange(8), 400)
            return seen.at[at].set(batch.x[:, 0], mode="drop"), count + batch.where.sum()

        return client.fold(record, (jnp.zeros(400), jnp.int32(0)), key, batches, augment)

    stored, count = jax.jit(lambda: visited(None))()
    shuffled, again = jax.jit(visited)(jax.random.key(3))
    moved, _ = jax.jit(lambda: visited(jax.random.key(3), augment=True))()
    _, few = jax.jit(lambda: visited(None, 2))()
    expected = np.asarray(data.x)[np.asarray(data.order)[0, offsets[2] : offsets[3]], 0]
    assert int(count) == int(again) == size and int(few) == min(size, 16)
    np.testing.assert_array_equal(stored[:size], expected)
    np.testing.assert_array_equal(np.sort(shuffled[:size]), np.sort(expected))
    assert (np.asarray(shuffled[:size]) != expected).any()
    np.testing.assert_array_equal(moved[:size], shuffled[:size] + 100)
