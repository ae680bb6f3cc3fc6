import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import native
from fedjax_skew.models import native_conv
from fedjax_skew.models.conv import choose
from fedjax_skew.models.layers import Conv

# (image, side of the kernel, stride, channels in, features, padding of rows and columns)
SHAPES = {
    "winograd 3x3": ((9, 8), 3, 1, 16, 32, ((1, 1), (1, 1))),
    "winograd 5x5": ((7, 12), 5, 1, 32, 16, ((0, 0), (2, 2))),
    "winograd, many tiles": ((21, 22), 3, 1, 16, 16, ((0, 0), (0, 0))),
    "unequal padding": ((8, 7), 3, 1, 16, 16, ((2, 0), (0, 1))),
    "small result": ((4, 4), 3, 1, 16, 16, ((0, 0), (0, 0))),
    "more tiles of images than of results": ((13, 6), 3, 1, 32, 16, ((0, 0), (0, 0))),
    "more tiles of images, padding": ((9, 18), 3, 1, 16, 16, ((0, 1), (1, 0))),
    "more tiles of images, 5x5": ((9, 11), 5, 1, 16, 32, ((1, 0), (0, 0))),
    "stride 2": ((9, 8), 3, 2, 16, 32, ((1, 1), (1, 1))),
    "stride 2, last rows unused": ((8, 10), 3, 2, 32, 16, ((0, 0), (0, 0))),
    "even side, stride 2": ((8, 8), 2, 2, 16, 48, ((0, 0), (0, 0))),
    "three channels": ((8, 9), 3, 1, 3, 16, ((1, 1), (1, 1))),
    "one channel, 5x5": ((10, 7), 5, 1, 1, 32, ((2, 2), (2, 2))),
}
IMAGES = 3

pytestmark = pytest.mark.skipif(not native.available(), reason="no C++ compiler")


def _make(name, clients=()):
    size, side, stride, channels, features, pads = SHAPES[name]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*clients, IMAGES, *size, channels))
    kernel = rng.normal(size=(*clients, side, side, channels, features))
    conv = functools.partial(native_conv.conv, stride=stride, pads=pads)
    return jnp.float32(x), jnp.float32(kernel), lambda x, k: conv(x, k)


def _reference(name, x, kernel, dy):
    """The result, and the gradients for ``dy``, as sums over the window in float64."""
    _, side, stride, *_, pads = SHAPES[name]
    x, kernel = np.float64(x), np.float64(kernel)
    padded = np.pad(x, ((0, 0), *pads, (0, 0)))
    dpadded, dkernel = np.zeros_like(padded), np.zeros_like(kernel)
    rows, columns = ((n - side) // stride + 1 for n in padded.shape[1:3])
    y = np.zeros((len(x), rows, columns, kernel.shape[-1]))
    dy = np.zeros_like(y) + np.float64(dy(y.shape))
    for i in range(side):
        for j in range(side):
            at = np.s_[:, i : i + stride * rows : stride, j : j + stride * columns : stride]
            y += padded[at] @ kernel[i, j]
            dpadded[at] += dy @ kernel[i, j].T
            dkernel[i, j] = np.einsum("bhwc,bhwf->cf", padded[at], dy)
    (top, bottom), (left, right) = pads
    height, width = padded.shape[1] - bottom, padded.shape[2] - right
    return y, dpadded[:, top:height, left:width], dkernel


def _dy(shape):
    return np.float32(np.random.default_rng(1).normal(size=shape))


def _check(actual, expected, tolerance=2e-5):
    for a, b in zip(actual, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize("name", SHAPES)
def test_value_and_gradients_are_those_of_the_sum_over_the_window(name):
    x, kernel, conv = _make(name)
    y, pull = jax.vjp(conv, x, kernel)
    _check([y, *pull(jnp.asarray(_dy(y.shape)))], _reference(name, x, kernel, _dy))


@pytest.mark.parametrize("name", ["winograd 3x3", "stride 2", "three channels"])
def test_stacked_kernels_give_the_same_numbers_as_one_at_a_time(name):
    x, kernel, conv = _make(name, (2,))
    run = jax.jit(lambda x, k: jax.vjp(conv, x, k)[1](jnp.ones_like(conv(x, k))))
    stacked = jax.jit(jax.vmap(run))(x, kernel)
    for n in (0, 1):
        for a, b in zip(stacked, run(x[n], kernel[n]), strict=True):
            np.testing.assert_array_equal(a[n], b)
    shared = jax.vmap(conv, (0, None))(x, kernel[0])
    np.testing.assert_array_equal(shared[1], conv(x[1], kernel[0]))


@pytest.mark.parametrize("name", ["winograd 5x5", "stride 2"])
def test_second_derivatives_are_those_of_another_implementation(name):
    x, kernel, conv = _make(name)
    stride, pads = SHAPES[name][2], SHAPES[name][-1]

    def xla(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), pads, dimension_numbers=numbers
        )

    def product(conv):
        def along(x, kernel):
            dx, dkernel = jax.grad(lambda x, k: jnp.sin(conv(x, k)).sum(), (0, 1))(x, kernel)
            return (dx * x).sum() + (dkernel * kernel).sum()

        return jax.grad(along, (0, 1))(x, kernel)

    _check(product(conv), product(xla), 1e-3)


def test_masked_images_change_no_other_image_and_no_gradient():
    x, kernel, conv = _make("winograd 3x3")
    where = jnp.array([True, False, True])[:, None, None, None]

    def loss(kernel, x):
        y = conv(x, kernel)
        return jnp.where(where, y, 0).sum(), y

    (dkernel, y), (dkernel2, y2) = (
        jax.grad(loss, has_aux=True)(kernel, jnp.where(where, x, filler)) for filler in (0.0, 1e6)
    )
    np.testing.assert_array_equal(y[::2], y2[::2])
    np.testing.assert_allclose(dkernel, dkernel2, rtol=1e-5, atol=1e-4)


def test_it_is_used_for_dense_float32_kernels_with_whole_vectors_of_features():
    assert choose("native", (3, 3, 16, 32)) == "native"
    assert choose("native", (3, 3, 3, 16)) == "native"
    assert choose("native", (3, 3, 16, 32), stride=2) == "native"
    assert choose("native", (3, 3, 16, 32), groups=2) == "patches"
    assert choose("native", (3, 3, 16, 30)) == "patches"
    assert choose("native", (5, 5, 6, 16)) == "patches"
    assert choose("native", (1, 1, 16, 32), stride=2) == "patches"
    assert choose("native", (3, 3, 16, 32), dtype=jnp.bfloat16) == "patches"
    assert choose("patches", (3, 3, 16, 32)) == "patches"
    assert choose("native", (5, 5, 3, 6), pooled=True) == "pooled"
    assert choose("patches", (5, 5, 3, 6), pooled=True) == "patches"
    assert choose("xla", (5, 5, 3, 6), pooled=True) == "xla"


def test_a_missing_or_failing_compiler_leaves_the_operations_of_xla(monkeypatch, tmp_path, caplog):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'internal error' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("FEDJAX_SKEW_CACHE", str(tmp_path))
    monkeypatch.setattr(native, "_register", native._register.__wrapped__)
    for compiler, why in (("no-such-compiler", "no C++ compiler"), (broken, "internal error")):
        monkeypatch.setenv("CXX", str(compiler))
        assert not native.available()
        assert why in caplog.text
        layer = Conv(16, impl="native")
        y, _ = layer.init_with_output(jax.random.key(0), jnp.ones((1, 4, 4, 3)))
        assert y.shape == (1, 4, 4, 16)
