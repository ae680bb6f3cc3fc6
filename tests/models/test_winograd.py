import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.models import winograd


def _direct(x, kernel):
    """The convolution as a sum over the kernel, in the precision of its arguments."""
    size = kernel.shape[0]
    height, width = x.shape[1] - size + 1, x.shape[2] - size + 1
    return sum(
        x[:, i : i + height, j : j + width] @ kernel[i, j] for i in range(size) for j in range(size)
    )


@pytest.mark.parametrize("size", [3, 5])
def test_the_transforms_filter_two_outputs_of_a_tile(size):
    block, kernel, image = (np.array(m) for m in winograd.transforms(size))
    rng = np.random.default_rng(0)
    tile, taps = rng.normal(size=size + 1), rng.normal(size=size)
    actual = block @ ((kernel @ taps) * (image @ tile))
    np.testing.assert_allclose(actual, [tile[:-1] @ taps, tile[1:] @ taps], rtol=1e-12)


@pytest.mark.parametrize(
    ("size", "out", "tolerance"),
    [(3, (2, 2), 3e-6), (3, (8, 6), 3e-6), (3, (7, 5), 3e-6), (3, (1, 1), 3e-6), (5, (7, 4), 2e-5)],
)
def test_conv_is_the_sum_over_the_kernel(size, out, tolerance):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, out[0] + size - 1, out[1] + size - 1, 32))
    kernel = rng.normal(size=(size, size, 32, 40))
    expected = _direct(x, kernel)
    factors = winograd.transform_kernel(jnp.float32(kernel))
    actual = winograd.conv(jnp.float32(x), factors)
    np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize(("size", "tolerance"), [(3, 3e-6), (5, 2e-5)])
def test_gradients_are_those_of_the_sum(size, tolerance):
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (2, size + 4, size + 3, 32))
    kernel = jax.random.normal(keys[1], (size, size, 32, 32))
    weight = jax.random.normal(keys[2], (2, 5, 4, 32))

    def loss(conv):
        return lambda x, kernel: jnp.sum(weight * conv(x, kernel))

    def ours(x, kernel):
        return winograd.conv(x, winograd.transform_kernel(kernel))

    expected = jax.grad(loss(_direct), (0, 1))(x, kernel)
    actual = jax.grad(loss(ours), (0, 1))(x, kernel)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * float(jnp.abs(b).max()))


def test_pays_for_many_channels_in_full_precision():
    def pays(channels=32, features=64, size=3, out=(8, 8), dtype=jnp.float32):
        kernel = jax.ShapeDtypeStruct((size, size, channels, features), dtype)
        return winograd.pays(kernel, out)

    assert pays()
    assert not pays(channels=16)
    assert not pays(features=16)
    assert pays(size=5)
    assert not pays(size=7)
    assert not pays(out=(3, 3))  # Four blocks would be two thirds padding.
    assert not pays(dtype=jnp.bfloat16)
