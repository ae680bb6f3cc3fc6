"""Operations of traced programs, counted by hand."""

import jax
import jax.numpy as jnp

from fedjax_skew.engine import flops


def test_products_convolutions_and_scans_are_counted():
    def product(a, b):
        return a @ b

    a, b = jnp.zeros((3, 5)), jnp.zeros((5, 7))
    assert flops.count(jax.make_jaxpr(product)(a, b).jaxpr) == (0, 2 * 3 * 5 * 7)

    def steps(a):
        return jax.lax.scan(lambda c, _: (c @ c, None), a, None, length=10)[0]

    assert flops.count(jax.make_jaxpr(steps)(jnp.zeros((4, 4))).jaxpr) == (0, 10 * 2 * 4**3)

    def convolve(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    x, w = jnp.zeros((2, 8, 8, 3)), jnp.zeros((3, 3, 3, 16))
    traced = jax.make_jaxpr(convolve)(x, w).jaxpr
    assert flops.count(traced) == (0, 2 * (2 * 8 * 8 * 16) * 27)


def test_a_loop_of_unknown_length_counts_once_and_apart():
    def loop(n, a):
        return jax.lax.fori_loop(0, n, lambda _, c: c @ c, a)

    found = flops.count(jax.make_jaxpr(loop)(jnp.int32(3), jnp.zeros((4, 4))).jaxpr)
    assert found.looped >= 2 * 4**3
    assert found.looped < 2 * 4**3 + 10
