"""The convolution for stacked clients agrees with XLA's, and its kernel gradients stay grouped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.models import grouped

KEY = jax.random.key(0)
NO_PADS = ((0, 0), (0, 0))
# side of the kernel, stride, padding, groups
FORMS = {
    "3x3": (3, 1, ((1, 1), (1, 1)), 1),
    "strided": (3, 2, ((0, 1), (0, 1)), 1),
    "5x5 valid": (5, 1, NO_PADS, 1),
    "1x1": (1, 1, NO_PADS, 1),
    "1x1 strided": (1, 2, NO_PADS, 1),
    "depthwise": (3, 1, ((1, 1), (1, 1)), 4),
}


def losses(name):
    """Scalar functions of images and kernel: ours, and the one that JAX differentiates."""
    side, stride, pads, groups = FORMS[name]

    def ours(x, kernel):
        return jnp.sum(jnp.sin(grouped.conv(x, kernel, (stride, stride), pads, groups)))

    def theirs(x, kernel):
        y = jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), pads,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
        )  # fmt: skip
        return jnp.sum(jnp.sin(y))

    x = jax.random.normal(KEY, (3, 2, 7, 7, 4))
    kernel = jax.random.normal(KEY, (3, side, side, 4 // groups, 8))
    return ours, theirs, x, kernel


def close(found, expected):
    """Equal to 1e-6 of the largest value."""

    def check(a, b):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * np.abs(b).max())

    jax.tree.map(check, found, expected)


@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients_of_stacked_clients_agree(name):
    ours, theirs, x, kernel = losses(name)
    for in_axes in ((0, 0), (None, 0)):
        images = x if in_axes[0] == 0 else x[0]
        found, expected = (
            jax.jit(jax.vmap(jax.value_and_grad(fn, (0, 1)), in_axes))(images, kernel)
            for fn in (ours, theirs)
        )
        close(found, expected)


def test_gradients_of_gradients_agree():
    ours, theirs, x, kernel = losses("3x3")

    def size(fn):
        def norm(x, kernel):
            return sum(jnp.sum(g**2) for g in jax.grad(fn, (0, 1))(x, kernel))

        return jax.jit(jax.vmap(jax.grad(norm, (0, 1))))(x, kernel)

    close(size(ours), size(theirs))


def test_kernel_gradients_of_stacked_clients_are_transposes_of_grouped_convolutions():
    ours, theirs, x, kernel = losses("3x3")
    texts = [
        jax.jit(jax.vmap(jax.grad(fn, 1)))
        .trace(x, kernel)
        .lower(lowering_platforms=("cuda",))
        .as_text()
        for fn in (ours, theirs)
    ]
    assert ["batch_group_count = 3" in text for text in texts] == [True, False]


@pytest.mark.parametrize(("name", "product"), [("1x1", True), ("1x1 strided", False)])
def test_only_plain_1x1_kernels_are_products(name, product):
    """XLA for GPUs ends the process over a product whose input is a strided slice."""
    ours, _, x, kernel = losses(name)
    text = jax.jit(jax.grad(ours, (0, 1))).lower(x[0], kernel[0]).as_text()
    assert ("dot_general" in text, "convolution" in text) == (product, not product)
