import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import native
from fedjax_skew.models import native_dense
from fedjax_skew.models.layers import dense

pytestmark = pytest.mark.skipif(not native.available(), reason="no C++ compiler")

# (rows, inputs, outputs)
SHAPES = [
    (64, 784, 200),
    (7, 5, 17),
    (3, 14, 24),
    (1, 31, 31),
    (5, 1, 16),
    (9, 15, 40),
    (2, 29, 71),
]


def _arrays(shape, clients=()):
    rows, inputs, outputs = shape
    rng = np.random.default_rng(0)
    sizes = (rows, inputs), (inputs, outputs), (rows, outputs)
    return [jnp.float32(rng.normal(size=(*clients, *size))) for size in sizes]


def _pull(x, kernel, dy):
    y, pull = jax.vjp(native_dense.dot, x, kernel)
    return y, *pull(dy)


@pytest.mark.parametrize("shape", SHAPES)
def test_product_and_gradients_equal_float64_products(shape):
    x, kernel, dy = _arrays(shape)
    wide = [np.float64(a) for a in (x, kernel, dy)]
    y, dx, dkernel = jax.jit(_pull)(x, kernel, dy)
    np.testing.assert_allclose(y, wide[0] @ wide[1], rtol=1e-5, atol=2e-4)
    np.testing.assert_allclose(dx, wide[2] @ wide[1].T, rtol=1e-5, atol=2e-4)
    np.testing.assert_allclose(dkernel, wide[0].T @ wide[2], rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_vmap_equals_one_at_a_time(shape):
    arrays = _arrays(shape, (2, 3))
    y, _, dkernel = jax.jit(jax.vmap(jax.vmap(_pull)))(*arrays)
    one = jax.jit(_pull)(*(a[1, 2] for a in arrays))
    np.testing.assert_array_equal(y[1, 2], one[0])
    np.testing.assert_array_equal(dkernel[1, 2], one[2])
    shared = jax.jit(jax.vmap(jax.vmap(_pull, (None, None, 0)), (None, None, 0)))
    x, kernel, dy = arrays
    one = jax.jit(_pull)(x[0, 0], kernel[0, 0], dy[1, 2])[2]
    np.testing.assert_array_equal(shared(x[0, 0], kernel[0, 0], dy)[2][1, 2], one)


def test_masked_rows_change_no_gradient():
    x, kernel, dy = _arrays((23, 30, 40))
    where = jnp.arange(23) < 9
    y, _, dkernel = jax.jit(_pull)(x, kernel, jnp.where(where[:, None], dy, 0))
    short = jax.jit(_pull)(x[:9], kernel, dy[:9])
    np.testing.assert_array_equal(y[:9], short[0])
    np.testing.assert_allclose(dkernel, short[2], rtol=1e-6, atol=1e-6)


def test_second_derivatives_equal_those_of_the_plain_product():
    x, kernel, _ = _arrays((6, 9, 20))

    def penalty(product):
        def loss(x, kernel):
            return jnp.sum(jnp.tanh(product(x, kernel)) ** 2)

        def norm(x, kernel):
            return sum(jnp.sum(g**3) for g in jax.grad(loss, (0, 1))(x, kernel))

        return jax.grad(norm, (0, 1))

    found = penalty(native_dense.dot)(x, kernel)
    for a, b in zip(found, penalty(jnp.matmul)(x, kernel), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


def test_values_that_are_not_finite_spread_as_in_a_product():
    x, kernel, dy = _arrays((4, 20, 33))
    y, _, dkernel = (np.asarray(a) for a in _pull(x.at[1, 3].set(jnp.nan), kernel, dy))
    for found, row in ((y, 1), (dkernel, 3)):
        assert np.isnan(found[row]).all() and np.isfinite(np.delete(found, row, axis=0)).all()


@pytest.mark.parametrize(("shape", "compiled"), [((5, 8, 32), True), ((5, 8, 10), False)])
def test_layer_has_flax_parameters_and_uses_the_kernel_if_there_is_one(shape, compiled):
    x, *_ = _arrays(shape)
    ours, plain = dense(shape[2], impl="native"), nn.Dense(shape[2])
    variables = plain.init(jax.random.key(0), x)
    assert jax.tree.structure(ours.init(jax.random.key(0), x)) == jax.tree.structure(variables)

    def loss(variables, layer):
        return jnp.sum(layer.apply(variables, x) ** 2)

    a, b = (jax.grad(loss)(variables, layer) for layer in (ours, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), a, b)
    traced = str(jax.make_jaxpr(jax.grad(lambda v: loss(v, ours)))(variables))
    assert traced.count("fedjax_skew_dense") == 2 * compiled  # The product and its gradient.
    images = jnp.zeros((2, 3, *x.shape))
    assert ours.apply(variables, images).shape == (2, 3, *shape[::2])
