"""The pure functions of a simulation under the caller's own transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.engine.keys import seed_keys
from fedjax_skew.simulation.pure import make_simulation


@pytest.fixture(scope="module")
def simulation(tiny_config, blobs):
    return make_simulation(tiny_config(method="scaffold", participation=0.5), dataset=blobs)


def two_rounds(simulation, state):
    def step(state, _):
        return simulation.round(state, simulation.arrays)

    return jax.lax.scan(step, state, length=2)


def test_rounds_can_be_scanned_from_a_traced_start(simulation):
    def whole(keys):
        state, reports = two_rounds(simulation, simulation.init(keys))
        return state, reports, simulation.evaluate(state, simulation.arrays)

    keys = seed_keys(jnp.zeros(1, jnp.uint32))
    state, reports, scores = jax.jit(whole)(keys)
    assert int(state.round) == 2 and reports.loss.shape == (2, 1)
    assert int(scores.confusion.sum()) == 90
    stepped = simulation.init()
    one = jax.jit(simulation.round)
    for _ in range(2):
        stepped, _ = one(stepped, simulation.arrays)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), state.params, stepped.params
    )


def test_vmap_over_seeds_equals_one_seed_at_a_time(simulation):
    keys = seed_keys(jnp.arange(3, dtype=jnp.uint32)).reshape(3, 1, 2)
    states = jax.vmap(simulation.init)(keys)
    states, reports = jax.jit(jax.vmap(simulation.round, in_axes=(0, None)))(
        states, simulation.arrays
    )
    assert reports.loss.shape == (3, 1)
    alone, report = jax.jit(simulation.round)(simulation.init(keys[2]), simulation.arrays)
    np.testing.assert_allclose(reports.loss[2], report.loss, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[2], b, atol=1e-5), states.params, alone.params
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[2], b, atol=1e-4), states.clients, alone.clients
    )


@pytest.mark.parametrize("field", ["state_placement", "dataset__placement"])
def test_arrays_on_the_host_are_refused(tiny_config, blobs, field):
    with pytest.raises(ValueError, match=r"placement='host' .*must be 'device'"):
        make_simulation(tiny_config(**{field: "host"}), dataset=blobs)
