"""The same configuration gives the same numbers: twice, on other devices, in chunks, by seed."""

import jax
import numpy as np
import pytest

TOLERANCE = 1e-5  # of parameters around 1; the README states it


@pytest.fixture(scope="module")
def alone(simulate):
    return run(simulate, num_devices=1, clients_per_chunk=2)


def run(simulate, num_seeds=2, **changes):
    found = simulate("scaffold", participation=0.7, momentum=0.5, num_seeds=num_seeds, **changes)
    return jax.tree.map(np.asarray, (found.state.params, found.reports[0].loss))


def test_twice_is_bit_identical(simulate, alone):
    again = run(simulate, num_devices=1, clients_per_chunk=2)
    jax.tree.map(np.testing.assert_array_equal, alone, again)


@pytest.mark.parametrize(("devices", "chunk"), [(1, 5), (2, 1), (8, 3)])
def test_devices_and_chunks_agree_to_the_tolerance(simulate, alone, devices, chunk):
    spread = run(simulate, num_devices=devices, clients_per_chunk=chunk)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE), alone, spread
    )


def test_a_seed_alone_is_the_same_seed_among_several(simulate, alone):
    second, _ = run(simulate, num_seeds=1, seed=1, num_devices=1, clients_per_chunk=2)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[1], b[0], rtol=TOLERANCE, atol=TOLERANCE),
        alone[0],
        second,
    )
