import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.models.layers import Conv, global_average_pool, max_pool, resolve_conv

# (channels in, features, kernel, strides, padding, groups)
SHAPES = {
    "3x3 same": (3, 8, 3, 1, "SAME", 1),
    "3x3 valid": (1, 4, 3, 1, "VALID", 1),
    "3x3 equal channels": (8, 8, 3, 1, 1, 1),
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


def _pair(name, impl):
    channels, features, kernel, strides, padding, groups = SHAPES[name]
    padding = padding if isinstance(padding, str | int) else list(padding)
    ours = Conv(
        features,
        (kernel, kernel),
        strides=strides,
        padding=padding,
        feature_group_count=groups,
        impl=impl,
    )
    theirs = nn.Conv(
        features,
        (kernel, kernel),
        strides=strides,
        padding=padding,
        feature_group_count=groups,
        bias_init=nn.initializers.normal(1.0),
    )
    x = jax.random.normal(jax.random.key(1), (2, 9, 8, channels))
    return ours, theirs, x


@pytest.mark.parametrize("impl", ["patches", "xla"])
@pytest.mark.parametrize("name", SHAPES)
def test_conv_equals_flax_in_value_and_gradient(name, impl):
    ours, theirs, x = _pair(name, impl)
    variables = theirs.init(jax.random.key(0), x)

    def run(module):
        def loss(variables, x):
            y = module.apply(variables, x)
            return jnp.sum(jnp.sin(y)), y

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(variables, x)

    (_, expected), expected_grads = run(theirs)
    (_, actual), grads = run(ours)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), grads, expected_grads
    )


def test_conv_has_the_parameters_of_flax():
    for name in ("3x3 same", "depthwise multiplier"):
        ours, theirs, x = _pair(name, "patches")
        expected = jax.tree.map(jnp.shape, theirs.init(jax.random.key(0), x))
        assert jax.tree.map(jnp.shape, ours.init(jax.random.key(0), x)) == expected
    assert "bias" not in Conv(4, use_bias=False).init(jax.random.key(0), x)["params"]


@pytest.mark.parametrize("name", ["3x3 same", "3x3 equal channels", "depthwise"])
def test_stacked_kernels_need_no_convolution_operation(name):
    ours, _, x = _pair(name, "patches")
    variables = jax.vmap(ours.init, (0, None))(jax.random.split(jax.random.key(0), 3), x)
    text = jax.jit(jax.vmap(ours.apply, (0, None))).lower(variables, x).as_text()
    assert "convolution" not in text
    assert ("dot_general" in text) == (name != "depthwise")


def test_conv_in_bfloat16_keeps_float32_parameters():
    for impl in ("patches", "xla"):
        module = Conv(4, impl=impl, dtype=jnp.bfloat16)
        y, variables = module.init_with_output(jax.random.key(0), jnp.ones((1, 5, 5, 2)))
        assert y.dtype == jnp.bfloat16
        assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype(jnp.float32)}


def test_kernel_starts_like_pytorch():
    kernel = Conv(64).init(jax.random.key(0), jnp.ones((1, 4, 4, 16)))["params"]["kernel"]
    bound = (3 * 3 * 16) ** -0.5
    assert 0.99 * bound < jnp.abs(kernel).max() <= bound


def test_conv_auto_follows_the_backend(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert resolve_conv("auto") == "patches"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert resolve_conv("auto") == "xla"
    assert resolve_conv("patches") == "patches"


def test_wrong_input_to_a_conv_is_a_clear_error():
    with pytest.raises(ValueError, match="Did you mean 'patches'"):
        resolve_conv("patch")
    with pytest.raises(ValueError, match=r"images \[B, H, W, C\]"):
        Conv(4).init(jax.random.key(0), jnp.ones((2, 60)))
    with pytest.raises(ValueError, match="4x4 pixels is too small for a kernel of 5x5"):
        Conv(4, (5, 5), padding="VALID").init(jax.random.key(0), jnp.ones((1, 4, 4, 1)))


@pytest.mark.parametrize("size", [(8, 6), (7, 5), (13, 2)])
@pytest.mark.parametrize("window", [2, 3])
def test_max_pool_equals_flax_in_value_and_gradient(size, window):
    if min(size) < window:
        size = (size[0], window)
    x = jax.random.normal(jax.random.key(0), (2, *size, 3))
    square = (window, window)

    def run(pool):
        return jax.value_and_grad(lambda x: jnp.sum(jnp.sin(pool(x))))(x)

    expected, expected_grad = run(lambda x: nn.max_pool(x, square, square, "VALID"))
    actual, grad = run(lambda x: max_pool(x, window))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    np.testing.assert_allclose(grad, expected_grad, rtol=1e-6)


def test_max_pool_gives_a_tie_to_the_first_pixel():
    grad = jax.grad(lambda x: max_pool(x).sum())(jnp.zeros((1, 4, 4, 1)))
    np.testing.assert_array_equal(grad[0, :, :, 0], np.tile([[1, 0], [0, 0]], (2, 2)))


def test_max_pool_allows_forward_and_second_derivatives():
    x = jax.random.normal(jax.random.key(0), (1, 4, 4, 2))
    f = lambda x: jnp.sum(max_pool(x) ** 3)  # noqa: E731
    _, tangent = jax.jvp(f, (x,), (jnp.ones_like(x),))
    np.testing.assert_allclose(tangent, jax.grad(f)(x).sum(), rtol=1e-5)
    _, product = jax.jvp(jax.grad(f), (x,), (x,))
    np.testing.assert_allclose(product, 2 * jax.grad(f)(x), rtol=1e-5)


def test_global_average_pool_averages_pixels():
    x = jax.random.normal(jax.random.key(0), (2, 3, 5, 4))
    np.testing.assert_allclose(global_average_pool(x), np.mean(x, (1, 2)), rtol=1e-5, atol=1e-6)
