import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.models.norm import Norm, num_groups


def _batch_norm(x, where=None, stats=None, train=True):
    module = Norm("batch")
    variables = module.init(jax.random.key(0), x, True)
    if stats is not None:
        variables = {**variables, "batch_stats": stats}
    return module.apply(variables, x, train, where, mutable=["batch_stats"])


def _sum_first(results):
    return jnp.sum(results[0]), results


def test_batch_norm_equals_numpy_and_keeps_pytorch_running_values():
    x = np.asarray(jax.random.normal(jax.random.key(0), (5, 3, 2, 4))) * 2 + 1
    y, new = _batch_norm(x)
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new["batch_stats"]["mean"], 0.1 * mean, rtol=1e-5)
    unbiased = x.reshape(-1, 4).var(0, ddof=1)
    np.testing.assert_allclose(new["batch_stats"]["var"], 0.9 + 0.1 * unbiased, rtol=1e-5)


def test_batch_norm_in_evaluation_uses_the_running_values():
    x = jax.random.normal(jax.random.key(0), (5, 3, 2, 4))
    stats = {"mean": jnp.arange(4.0), "var": jnp.arange(1.0, 5.0)}
    y, new = _batch_norm(x, stats=stats, train=False)
    np.testing.assert_allclose(
        y, (x - stats["mean"]) / np.sqrt(stats["var"] + 1e-5), rtol=1e-4, atol=1e-5
    )
    jax.tree.map(np.testing.assert_array_equal, new["batch_stats"], stats)


def test_masked_rows_change_neither_values_nor_gradients_nor_statistics():
    x = jax.random.normal(jax.random.key(0), (6, 3, 3, 4))
    where = jnp.array([True, False, True, True, False, True])
    garbage = jnp.where(where[:, None, None, None], x, 1e30)
    module = Norm("batch")
    variables = module.init(jax.random.key(0), x, True)

    def loss(params, x, where, weights):
        y, new = module.apply(
            {**variables, "params": params}, x, True, where, mutable=["batch_stats"]
        )
        return jnp.sum(jnp.sin(y) * weights[:, None, None, None]), (y, new)

    grad = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, (y, new)), grads = grad(variables["params"], garbage, where, where.astype(jnp.float32))
    (_, (y0, new0)), grads0 = grad(variables["params"], x[where], None, jnp.ones(4))
    np.testing.assert_allclose(y[where], y0, rtol=1e-4, atol=1e-5)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # noqa: E731
    jax.tree.map(close, new, new0)
    jax.tree.map(close, grads[0], grads0[0])
    close(grads[1][where], grads0[1])
    np.testing.assert_array_equal(grads[1][~where], 0)


def test_a_batch_without_valid_rows_keeps_statistics_and_stays_finite():
    x = jax.random.normal(jax.random.key(0), (3, 2, 2, 4))
    stats = {"mean": jnp.arange(4.0), "var": jnp.arange(1.0, 5.0)}
    where = jnp.zeros(3, bool)
    grad, (y, new) = jax.jit(
        jax.grad(lambda x: _sum_first(_batch_norm(x, where, stats)), has_aux=True)
    )(x)
    jax.tree.map(np.testing.assert_array_equal, new["batch_stats"], stats)
    assert np.isfinite(y).all()
    assert np.isfinite(grad).all()


def test_one_valid_value_per_channel_stays_finite():
    x = jax.random.normal(jax.random.key(0), (3, 1, 1, 4)) * 1e3
    y, new = _batch_norm(x, jnp.array([True, False, False]))
    assert np.isfinite(y).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(new))


def test_group_norm_equals_flax_and_has_no_running_values():
    x = jax.random.normal(jax.random.key(0), (2, 3, 3, 12))
    y, variables = Norm("group").init_with_output(jax.random.key(0), x, True)
    expected, _ = nn.GroupNorm(num_groups=6, epsilon=1e-5).init_with_output(jax.random.key(0), x)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert set(variables) == {"params"}


@pytest.mark.parametrize(
    ("channels", "groups"), [(1, 1), (6, 3), (16, 8), (24, 12), (64, 32), (96, 32), (144, 24)]
)
def test_groups_divide_the_channels_and_hold_at_least_two(channels, groups):
    assert num_groups(channels) == groups


def test_no_norm_returns_its_input():
    x = jnp.ones((2, 3))
    y, variables = Norm("none").init_with_output(jax.random.key(0), x, True)
    assert y is x
    assert not variables
