import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import native
from fedjax_skew.models import native_norm
from fedjax_skew.models.norm import Norm

ROWS, CHANNELS = 5, 32
WHERE = {
    "all rows": [True] * 5,
    "some rows": [False, True, True, False, True],
    "one row": [True, False, False, False, False],
    "no row": [False] * 5,
}

pytestmark = pytest.mark.skipif(not native.available(), reason="no C++ compiler")


def _make(shape=(3, 7), offset=0.0):
    keys = jax.random.split(jax.random.key(0), 4)
    x = offset + 2 * jax.random.normal(keys[0], (ROWS, *shape, CHANNELS))
    variables = {
        "params": {
            "scale": jax.random.normal(keys[1], (CHANNELS,)),
            "bias": jax.random.normal(keys[2], (CHANNELS,)),
        },
        "batch_stats": {"mean": jnp.ones(CHANNELS), "var": jnp.full(CHANNELS, 2.0)},
    }
    return x, variables, jax.random.normal(keys[3], x.shape)


def _run(impl, x, variables, dy, where, relu):
    """The result, the running statistics, and the gradients of parameters and rows."""
    norm = Norm("batch", relu=relu, impl=impl)

    def apply(params, x):
        return norm.apply(
            variables | {"params": params}, x, True, jnp.array(where), mutable=["batch_stats"]
        )

    (y, stats), pull = jax.vjp(apply, variables["params"], x)
    return y, stats, pull((dy, jax.tree.map(jnp.ones_like, stats)))


def _close(actual, expected, tolerance):
    def check(a, b):
        np.testing.assert_allclose(a, b, atol=tolerance * max(1.0, float(jnp.abs(b).max())))

    jax.tree.map(check, actual, expected)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", WHERE)
def test_it_equals_the_operations_one_by_one(name, relu):
    made = _make()
    actual, expected = (_run(impl, *made, WHERE[name], relu) for impl in ("native", "patches"))
    _close(actual, expected, 2e-5)


@pytest.mark.parametrize("shape", [(), (1,), (4, 2)])
def test_rows_may_have_any_number_of_axes(shape):
    made = _make(shape)
    where = WHERE["some rows"]
    _close(_run("native", *made, where, True), _run("patches", *made, where, True), 2e-5)


def test_the_variance_of_large_values_does_not_cancel():
    x, *rest = _make((16, 16), offset=1000.0)
    _, stats, _ = _run("native", x, *rest, WHERE["all rows"], False)
    var = 0.9 * 2 + 0.1 * np.var(np.float64(x), axis=(0, 1, 2), ddof=1)
    np.testing.assert_allclose(stats["batch_stats"]["var"], var, rtol=1e-5)


def test_masked_rows_may_hold_anything_and_infinities_stay():
    x, variables, dy = _make()
    where = WHERE["some rows"]
    dy = jnp.where(jnp.array(where)[:, None, None, None], dy, 0)
    expected = _run("native", x, variables, dy, where, True)
    _close(_run("native", x.at[0].set(jnp.nan), variables, dy, where, True), expected, 0)
    y, *_ = _run("native", x.at[1].set(jnp.inf), variables, dy, where, True)
    assert jnp.isnan(y[jnp.array(where)]).all()


def test_stacked_clients_give_the_same_numbers_as_one_at_a_time():
    x, variables, _ = _make()
    scale, bias = variables["params"]["scale"], variables["params"]["bias"]
    where = jnp.array(WHERE["some rows"])

    def run(x, scale):
        def loss(x, scale):
            y, *moments = native_norm.batch_norm(x, where, scale, bias, eps=1e-5, relu=True)
            return jnp.sin(y).sum(), moments

        return jax.grad(loss, (0, 1), has_aux=True)(x, scale)

    xs, scales = jnp.stack([x, x + 1]), jnp.stack([scale, -scale])
    stacked = jax.jit(jax.vmap(run))(xs, scales)
    for n in (0, 1):
        one = jax.jit(run)(xs[n], scales[n])
        jax.tree.map(lambda a, b, n=n: np.testing.assert_array_equal(a[n], b), stacked, one)


def test_second_derivatives_are_those_of_the_operations():
    x, variables, dy = _make()
    where = jnp.array(WHERE["some rows"])

    def product(impl):
        norm = Norm("batch", relu=True, impl=impl)

        def loss(params, x):
            y, _ = norm.apply(
                variables | {"params": params}, x, True, where, mutable=["batch_stats"]
            )
            return jnp.sin(y * dy).sum()

        def along(params, x):
            dparams, dx = jax.grad(loss, (0, 1))(params, x)
            return (dparams["scale"] * dparams["bias"]).sum() + (dx * jnp.cos(x)).sum()

        return jax.grad(along, (0, 1))(variables["params"], x)

    _close(product("native"), product("patches"), 1e-4)


def test_it_needs_whole_vectors_of_channels():
    assert native_norm.supports(32)
    assert not native_norm.supports(24)
    norm = Norm("batch", impl="native")
    y, _ = norm.init_with_output(jax.random.key(0), jnp.ones((2, 3, 24)), True)
    assert y.shape == (2, 3, 24)
