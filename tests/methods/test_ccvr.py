"""CCVR: pooled class moments, Gaussian features, a calibrated head."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods.base import Batch, Evaluation
from fedjax_skew.methods.ccvr import ccvr, draw_features, pooled_moments


@pytest.fixture
def evaluation(make_client, make_params, info, tiny_model):
    """Two clients of 23 and 12 samples; class 3 has none; the head prefers class 0."""
    rng = np.random.default_rng(0)
    params = make_params()
    params["head"]["bias"] = jnp.array([3.0, 0.0, 0.0, 0.0])
    clients = []
    for n in (23, 12):
        labels = rng.integers(0, 3, n)
        x = rng.normal(size=(n, 6)) + 4 * np.eye(3, 6)[labels]
        clients.append((x.astype(np.float32), labels.astype(np.int32)))

    def context(x, labels):
        def fold(fn, carry):
            for at in range(0, len(x), 8):
                rows = np.minimum(np.arange(at, at + 8), len(x) - 1)
                where = jnp.asarray(np.arange(at, at + 8) < len(x))
                carry = fn(carry, Batch(jnp.asarray(x[rows]), jnp.asarray(labels[rows]), where))
            return carry

        return make_client(params=params, fold=fold)

    def sum_clients(fn):
        return optax.tree.add(*(fn(context(*c)) for c in clients))

    def make(final):
        return Evaluation(
            info, tiny_model, params, {}, None, jax.random.key(0), sum_clients, jnp.bool_(final)
        )

    x, labels = (np.concatenate(part) for part in zip(*clients, strict=True))
    return make, x, labels


def test_moments_pool_to_those_of_all_data_together(evaluation):
    make, x, labels = evaluation
    counts, mean, covariance = pooled_moments(make(True))
    features = np.asarray(make(True).model.apply(make(True).params, {}, x)[0].features, np.float64)
    np.testing.assert_array_equal(counts, np.bincount(labels, minlength=4))
    for c in range(3):
        own = features[labels == c]
        np.testing.assert_allclose(mean[c], own.mean(0), atol=1e-5)
        np.testing.assert_allclose(covariance[c], np.cov(own.T), atol=1e-5)
    assert float(jnp.abs(covariance[3]).max()) == 0.0


def test_features_have_the_moments_they_are_drawn_from():
    root = np.random.default_rng(1).normal(size=(2, 3, 3))
    covariance = root @ root.transpose(0, 2, 1)
    covariance[1] = 0.0
    mean = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    made = draw_features(jax.random.key(0), jnp.asarray(mean), jnp.asarray(covariance), 20000, 1e-6)
    np.testing.assert_allclose(made.mean(1), mean, atol=0.1)
    np.testing.assert_allclose(np.cov(np.asarray(made[0]).T), covariance[0], atol=0.3)
    assert np.asarray(made[1]).std() < np.inf and np.isfinite(made).all()


def test_only_the_head_of_the_final_model_is_calibrated(evaluation):
    make, x, labels = evaluation
    method = ccvr(samples_per_class=100, epochs=20, head_lr=0.1)
    early, late = make(False), make(True)
    jax.tree.map(np.testing.assert_array_equal, method.eval_model(early)[0], early.params)
    params, _ = jax.jit(lambda: method.eval_model(late))()
    jax.tree.map(np.testing.assert_array_equal, params["hidden"], late.params["hidden"])

    def accuracy(params):
        return (np.argmax(late.model.apply(params, {}, x)[0].logits, -1) == labels).mean()

    assert accuracy(params) > accuracy(late.params) + 0.2
