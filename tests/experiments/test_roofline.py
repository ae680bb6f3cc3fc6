"""Estimates of time from compiled programs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import hlo, roofline
from experiments.accelerators import ACCELERATORS
from fedjax_skew.simulation.problem import build

DEVICE = dataclasses.replace(
    ACCELERATORS["cpu"], peak={"default": 1e9, "highest": 5e8}, bandwidth=1e9, launch=1e-6, loop=0.0
)


def program(f, *args):
    return hlo.parse(jax.jit(f).lower(*args).compile().as_text())


def test_a_product_takes_its_operations_or_its_bytes():
    square = program(jnp.matmul, jnp.ones((64, 64)), jnp.ones((64, 64)))
    found = roofline.work(square, DEVICE, {})
    assert (found.flops, found.bytes) == (2 * 64**3, 3 * 4 * 64**2)
    assert found.seconds == pytest.approx(2 * 64**3 / 1e9, rel=0.01)
    slow = dataclasses.replace(DEVICE, bandwidth=1e6)
    assert roofline.work(square, slow, {}).seconds == pytest.approx(3 * 4 * 64**2 / 1e6, rel=0.01)


def test_the_peak_is_that_of_the_precision():
    with jax.default_matmul_precision("highest"):
        exact = program(lambda a, b: a @ b, jnp.ones((64, 64)), jnp.ones((64, 64)))
    seconds = roofline.work(exact, DEVICE, {}).seconds
    assert seconds == pytest.approx(2 * 64**3 / 5e8, rel=0.01)


@pytest.mark.parametrize("length", [None, 5])
def test_loops_count_as_often_as_they_run(length):
    def run(x, n=length):
        with jax.named_scope("steps"):
            return jax.lax.fori_loop(0, n, lambda _, x: x @ x, x)

    x = jnp.ones((16, 16))
    found = (
        program(run, x, jnp.int32(1)) if length is None else program(lambda x: run(x, length), x)
    )
    times = 3 if length is None else length
    assert roofline.work(found, DEVICE, {"steps": 3.0}).flops == times * 2 * 16**3


def test_the_shape_of_a_round_is_that_of_its_partition(tiny_config, blobs):
    config = tiny_config(clients_per_chunk=2, num_devices=2, local_epochs=3)
    problem = build(config, dataset=blobs, target="cuda")
    shape = roofline.round_shape(problem)
    sizes = problem.data.size(0, np.arange(6))
    steps = np.sort(3 * -(-sizes // 8))[::-1]
    assert shape.samples == 3 * sizes.sum()
    assert max(steps[0], steps[::2].sum() // 2) <= shape.steps <= steps[::2].sum()
    # Blocks of 32 steps are drawn together.
    assert shape.trips["draws"] * shape.trips["steps"] * 2 == pytest.approx(shape.steps)
