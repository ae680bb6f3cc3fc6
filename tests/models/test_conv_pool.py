import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import native
from fedjax_skew.models import conv_pool
from fedjax_skew.models.conv import explicit_padding
from fedjax_skew.models.layers import Conv, max_pool

# (batch, image, channels in, features, kernel, padding)
SHAPES = {
    "valid": (3, (12, 10), 3, 6, 5, "VALID"),
    "same": (2, (8, 8), 1, 4, 5, "SAME"),
    "rows and columns left over": (2, (9, 11), 2, 3, 5, "VALID"),
    "padding larger than the rest": (2, (7, 6), 2, 3, 3, ((2, 0), (0, 2))),
    "more windows in a row than lanes": (2, (9, 46), 1, 7, 5, "SAME"),
    "eight features": (2, (12, 8), 3, 8, 3, ((1, 2), (2, 1))),
    "one feature": (2, (7, 38), 2, 1, 3, "VALID"),
    "six features, three channels": (2, (12, 42), 3, 6, 5, ((1, 2), (3, 1))),
    "seven features, more windows than lanes": (2, (9, 46), 3, 7, 5, "SAME"),
    "one window": (17, (6, 6), 2, 3, 5, "VALID"),
    "many windows": (2, (40, 44), 6, 16, 5, "VALID"),
    "many features": (3, (8, 7), 2, 20, 3, "VALID"),
    "few entries": (3, (10, 9), 1, 32, 3, "VALID"),
    "few entries, three channels": (2, (9, 8), 3, 40, 3, "SAME"),
    "few entries, 5x5": (2, (12, 9), 1, 17, 5, ((2, 1), (0, 2))),
    "many features with padding": (2, (6, 6), 15, 33, 5, "SAME"),
}

pytestmark = pytest.mark.skipif(not native.available(), reason="no C++ compiler")

# Compiling is what these tests would spend their time on.
_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def _make(name, clients=()):
    batch, size, channels, features, side, padding = SHAPES[name]
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], (*clients, batch, *size, channels))
    kernel = jax.random.normal(keys[1], (*clients, side, side, channels, features))
    bias = jax.random.normal(keys[2], (*clients, features))
    return x, kernel, bias, explicit_padding(padding, size, (side, side), (1, 1))


def _one_by_one(x, kernel, bias, pads):
    y = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(max_pool(y + bias))


def _value_and_grad(function, pads, where=None):
    def loss(x, kernel, bias):
        y = function(x, kernel, bias, pads)
        rows = jnp.sin(y).sum((1, 2, 3))
        return (rows if where is None else jnp.where(where, rows, 0)).sum(), y

    return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)


def _close(actual, expected, tolerance=1e-4):
    def check(a, b):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(jnp.abs(b).max()))

    jax.tree.map(check, actual, expected)


@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_operations_one_by_one_in_value_and_gradient(name):
    *arrays, pads = _make(name)
    expected = _jit(_value_and_grad(_one_by_one, pads))(*arrays)
    found = _jit(_value_and_grad(conv_pool.conv_pool_relu, pads))(*arrays)
    _close(found, expected)
    alone = conv_pool.conv_pool_relu(*arrays, pads)  # Without the positions of the maxima.
    np.testing.assert_array_equal(alone, found[0][1])


@pytest.mark.parametrize("name", ["valid", "many features"])
def test_stacked_kernels_equal_kernels_one_at_a_time(name):
    *arrays, pads = _make(name, (2,))
    run = _value_and_grad(conv_pool.conv_pool_relu, pads)
    stacked = _jit(jax.vmap(run))(*arrays)
    for n in (0, 1):
        one = _jit(run)(*[a[n] for a in arrays])
        _close(jax.tree.map(lambda a, n=n: a[n], stacked), one)
    alone = jax.vmap(functools.partial(conv_pool.conv_pool_relu, pads=pads))(*arrays)
    np.testing.assert_array_equal(alone, stacked[0][1])  # Without the positions of the maxima.


@pytest.mark.parametrize("features", [3, 17])
def test_masked_rows_change_no_gradient(features):
    *arrays, pads = _make("one window")
    arrays[1:] = (jnp.tile(a, features)[..., :features] for a in arrays[1:])
    where = jnp.arange(17) < 5
    _, (dx, *others) = _jit(_value_and_grad(conv_pool.conv_pool_relu, pads, where))(*arrays)
    short = [arrays[0][:5], *arrays[1:]]
    _, (dx5, *others5) = _jit(_value_and_grad(conv_pool.conv_pool_relu, pads))(*short)
    _close((dx[:5], *others), (dx5, *others5))
    assert not dx[5:].any()


def test_a_tie_goes_to_the_first_pixel_and_relu_stops_the_gradient():
    x = jnp.zeros((1, 6, 6, 1))
    pads = ((0, 0), (0, 0))

    def gradient(bias):
        kernel = jnp.zeros((5, 5, 1, 1)).at[0, 0].set(1.0)
        loss = lambda x: conv_pool.conv_pool_relu(x, kernel, jnp.full(1, bias), pads).sum()  # noqa: E731
        return jax.grad(loss)(x)[0, :, :, 0]

    np.testing.assert_array_equal(gradient(1.0), np.zeros((6, 6)) + np.eye(1, 36).reshape(6, 6))
    np.testing.assert_array_equal(gradient(-1.0), np.zeros((6, 6)))


@pytest.mark.parametrize("name", ["valid", "many features"])
def test_second_derivatives_are_those_of_the_operations(name):
    x, kernel, bias, pads = _make(name)

    def product(function):
        def loss(x, kernel):
            return jnp.sin(function(x, kernel, bias, pads)).sum()

        def along(x, kernel):
            dx, dkernel = jax.grad(loss, (0, 1))(x, kernel)
            return (dx * x).sum() + (dkernel * kernel).sum()

        return _jit(jax.grad(along, (0, 1)))(x, kernel)

    _close(product(conv_pool.conv_pool_relu), product(_one_by_one), 1e-3)


def test_the_gradient_of_images_costs_nothing_if_nobody_asks():
    *arrays, pads = _make("valid")

    def loss(x, kernel, bias):
        return conv_pool.conv_pool_relu(x, kernel, bias, pads).sum()

    def calls(argnums):
        text = jax.jit(jax.grad(loss, argnums)).lower(*arrays).compile().as_text()
        return text.count("conv_pool_image_gradient")

    assert calls((1, 2)) == 0
    assert calls((0, 1, 2)) > 0


def test_positions_are_computed_for_a_backward_pass_only():
    *arrays, pads = _make("valid")
    run = functools.partial(conv_pool.conv_pool_relu, pads=pads)
    assert "conv_pool_places" not in jax.jit(run).lower(*arrays).as_text()
    grad = jax.jit(jax.grad(lambda *arrays: run(*arrays).sum()))
    assert "conv_pool_places" in grad.lower(*arrays).as_text()


def test_results_that_are_not_finite_stay():
    *arrays, pads = _make("valid")
    x = arrays[0].at[0, 3, 3, 0].set(jnp.nan)
    expected = jnp.isnan(_jit(_one_by_one, static_argnums=3)(x, *arrays[1:], pads))
    y = conv_pool.conv_pool_relu(x, *arrays[1:], pads)
    np.testing.assert_array_equal(jnp.isnan(y), expected)
    y = conv_pool.conv_pool_relu(arrays[0], arrays[1] * jnp.nan, arrays[2], pads)
    assert jnp.isnan(y).all()


def test_the_layer_uses_it_for_few_channels_only():
    assert conv_pool.supports((5, 5, 3, 6), jnp.float32)
    assert not conv_pool.supports((5, 5, 32, 64), jnp.float32)
    assert not conv_pool.supports((4, 4, 1, 8), jnp.float32)
    assert not conv_pool.supports((5, 5, 3, 6), jnp.bfloat16)
    x = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
    layer = Conv(4, (5, 5), pool_relu=True, impl="native")
    y, variables = layer.init_with_output(jax.random.key(0), x)
    text = jax.jit(layer.apply).lower(variables, x).as_text()
    assert "conv_pool" in text
    plain = Conv(4, (5, 5)).apply(variables, x)
    _close(y, jax.nn.relu(max_pool(plain)))
