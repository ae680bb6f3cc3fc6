import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.models import conv
from fedjax_skew.models.layers import Conv, global_average_pool, max_pool

KEY = jax.random.key(0)

# (channels in, features, kernel, strides, padding, groups)
SHAPES = {
    "3x3 same": (3, 8, 3, 1, "SAME", 1),
    "3x3 valid": (1, 4, 3, 1, "VALID", 1),
    "3x3 equal channels": (8, 8, 3, 1, 1, 1),
    "3x3 many channels": (32, 33, 3, 1, "SAME", 1),
    "3x3 strided same": (4, 6, 3, 2, "SAME", 1),
    "3x3 strided explicit": (4, 6, 3, 2, ((1, 1), (1, 1)), 1),
    "3x3 uneven padding": (6, 4, 3, 1, ((0, 2), (1, 0)), 1),
    "1x1": (4, 6, 1, 1, "SAME", 1),
    "1x1 strided": (4, 6, 1, 2, "VALID", 1),
    "5x5 same": (6, 4, 5, 1, "SAME", 1),
    "5x5 valid": (3, 6, 5, 1, "VALID", 1),
    "5x5 strided": (3, 6, 5, 2, "SAME", 1),
    "depthwise": (6, 6, 3, 1, 1, 6),
    "depthwise strided": (6, 6, 3, 2, 1, 6),
    "depthwise multiplier": (4, 12, 3, 1, "SAME", 4),
    "grouped": (4, 6, 3, 1, "SAME", 2),
}


def _modules(name, impls):
    """Returns flax's layer, ours in each implementation, and an input."""
    channels, features, kernel, strides, padding, groups = SHAPES[name]
    options = dict(strides=strides, padding=padding, feature_group_count=groups)
    theirs = nn.Conv(features, (kernel, kernel), bias_init=nn.initializers.normal(1.0), **options)
    ours = [Conv(features, (kernel, kernel), impl=impl, **options) for impl in impls]
    return theirs, *ours, jax.random.normal(jax.random.key(1), (2, 9, 8, channels))


@pytest.mark.parametrize("name", SHAPES)
def test_conv_equals_flax_in_value_and_gradient(name):
    # Nothing but the padding is ours in "xla": two shapes are enough for it.
    both = name in ("3x3 uneven padding", "depthwise strided")
    *modules, x = _modules(name, ["patches", "xla"] if both else ["patches"])
    variables = modules[0].init(KEY, x)

    # Compiling is what this test would spend its time on.
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(variables, x):
        def loss(variables, x, module):
            y = module.apply(variables, x)
            return jnp.sum(jnp.sin(y)), y

        return [
            jax.value_and_grad(loss, (0, 1), has_aux=True)(variables, x, module)
            for module in modules
        ]

    expected, *results = run(variables, x)
    for actual in results:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), actual, expected
        )


@pytest.mark.parametrize("name", ["3x3 equal channels", "3x3 many channels", "5x5 valid"])
def test_a_few_images_at_a_time_give_the_same(name, monkeypatch):
    _, ours, x = _modules(name, ["patches"])
    x = jnp.concatenate([x, x + 1])
    stacked = jax.vmap(ours.init, (0, None))(jax.random.split(KEY, 2), x)

    def run():
        @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
        def both(stacked, x):
            def loss(variables, x):
                return jnp.sum(jnp.sin(ours.apply(variables, x)))

            return jax.vmap(jax.value_and_grad(loss, (0, 1)), (0, None))(stacked, x)

        text = both.lower(stacked, x).as_text()
        return both(stacked, x), "while" in text

    expected, looped = run()
    assert not looped
    monkeypatch.setattr(conv, "_CACHE", 1)
    actual, looped = run()
    assert looped
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), actual, expected
    )


def test_conv_has_the_parameters_of_flax():
    for name in ("3x3 same", "depthwise multiplier"):
        theirs, ours, x = _modules(name, ["patches"])
        assert jax.eval_shape(ours.init, KEY, x) == jax.eval_shape(theirs.init, KEY, x)
    assert "bias" not in jax.eval_shape(Conv(4, use_bias=False).init, KEY, x)["params"]


@pytest.mark.parametrize(
    "name", ["3x3 same", "3x3 equal channels", "3x3 many channels", "depthwise"]
)
def test_stacked_kernels_need_no_convolution_operation(name):
    _, ours, x = _modules(name, ["patches"])
    variables = jax.eval_shape(jax.vmap(ours.init, (0, None)), jax.random.split(KEY, 3), x)
    text = jax.jit(jax.vmap(ours.apply, (0, None))).lower(variables, x).as_text()
    assert "convolution" not in text
    assert ("dot_general" in text) == (name != "depthwise")


def test_conv_in_bfloat16_keeps_float32_parameters():
    for impl in ("patches", "xla"):
        module = Conv(4, impl=impl, dtype=jnp.bfloat16)
        y, variables = module.init_with_output(KEY, jnp.ones((1, 5, 5, 2)))
        assert y.dtype == jnp.bfloat16
        assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype(jnp.float32)}


def test_kernel_starts_like_pytorch():
    kernel = Conv(64).init(KEY, jnp.ones((1, 4, 4, 16)))["params"]["kernel"]
    bound = (3 * 3 * 16) ** -0.5
    assert 0.99 * bound < jnp.abs(kernel).max() <= bound


def test_wrong_input_to_a_conv_is_a_clear_error():
    with pytest.raises(ValueError, match="Did you mean 'patches'"):
        conv.choose("patch", (3, 3, 1, 1))
    with pytest.raises(ValueError, match=r"images \[B, H, W, C\]"):
        Conv(4).init(KEY, jnp.ones((2, 60)))
    with pytest.raises(ValueError, match="4x4 pixels is too small for a kernel of 5x5"):
        Conv(4, (5, 5), padding="VALID").init(KEY, jnp.ones((1, 4, 4, 1)))


@pytest.mark.parametrize(("size", "window"), [((8, 6), 2), ((7, 5), 2), ((8, 10), 3)])
def test_max_pool_equals_flax_in_value_and_gradient(size, window):
    x = jax.random.normal(KEY, (2, *size, 3))
    square = (window, window)

    def run(pool):
        return jax.jit(jax.value_and_grad(lambda x: jnp.sum(jnp.sin(pool(x)))))(x)

    expected, expected_grad = run(lambda x: nn.max_pool(x, square, square, "VALID"))
    actual, grad = run(lambda x: max_pool(x, window))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    np.testing.assert_allclose(grad, expected_grad, rtol=1e-6)


def test_max_pool_gives_a_tie_to_the_first_pixel():
    grad = jax.grad(lambda x: max_pool(x).sum())(jnp.zeros((1, 4, 4, 1)))
    np.testing.assert_array_equal(grad[0, :, :, 0], np.tile([[1, 0], [0, 0]], (2, 2)))


def test_max_pool_allows_forward_and_second_derivatives():
    x = jax.random.normal(KEY, (1, 4, 4, 2))
    f = lambda x: jnp.sum(max_pool(x) ** 3)  # noqa: E731
    _, tangent = jax.jvp(f, (x,), (jnp.ones_like(x),))
    np.testing.assert_allclose(tangent, jax.grad(f)(x).sum(), rtol=1e-5)
    _, product = jax.jvp(jax.grad(f), (x,), (x,))
    np.testing.assert_allclose(product, 2 * jax.grad(f)(x), rtol=1e-5)


def test_global_average_pool_averages_pixels():
    x = jax.random.normal(KEY, (2, 3, 5, 4))
    np.testing.assert_allclose(global_average_pool(x), np.mean(x, (1, 2)), rtol=1e-5, atol=1e-6)
