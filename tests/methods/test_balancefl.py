"""BalanceFL: balanced batches, feature noise, distillation of absent classes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.balancefl import balancefl, batch_counts, draw_noise
from fedjax_skew.methods.base import Batch


def with_noise(context, value=0.0):
    return dataclasses.replace(context, scratch=jnp.full((500, 5), value))


def test_absent_classes_get_no_gradient_from_the_first_term(make_client, make_context, make_params):
    """Class 3 appears in padding only."""
    client = make_client()

    def loss(params):
        return balancefl().loss(with_noise(make_context(client, params=params)))

    gradient = jax.grad(loss)(make_params(3))["head"]
    np.testing.assert_array_equal(gradient["kernel"][:, 3], 0.0)
    assert float(jnp.abs(gradient["kernel"][:, 2]).max()) > 0


def test_without_noise_it_is_the_cross_entropy_among_the_classes_present(make_context):
    context = with_noise(make_context())
    logits = context.outputs.logits.at[:, 3].set(-jnp.inf)
    expected = context.mean(cross_entropy(logits, context.batch.labels))
    np.testing.assert_allclose(balancefl().loss(context), expected, rtol=1e-5)
    np.testing.assert_array_equal(batch_counts(context), [3, 3, 1, 0])


def test_the_largest_class_gets_no_noise(make_context, make_client):
    """A noise of NaN shows who gets any; of the other classes almost everybody does."""
    context = make_context()
    batch = context.batch._replace(labels=jnp.zeros(8, jnp.int32), where=jnp.ones(8, bool))
    quiet = dataclasses.replace(with_noise(context, jnp.nan), batch=batch)
    assert np.isfinite(balancefl().loss(quiet))
    batch = batch._replace(labels=jnp.full(8, 2))
    assert not np.isfinite(balancefl().loss(dataclasses.replace(quiet, batch=batch)))


def test_the_global_model_itself_has_nothing_to_distil(make_client, make_context):
    client = make_client()
    context = make_context(client, params=client.params)
    batch = context.batch._replace(labels=jnp.zeros(8, jnp.int32))
    same = dataclasses.replace(context, batch=batch)
    other = dataclasses.replace(make_context(client), batch=batch)
    term = balancefl(smooth=0.0).regularizer
    np.testing.assert_allclose(term(same), 0.0, atol=1e-6)
    assert float(term(other)) > 1e-3


def test_the_term_is_the_distillation_less_the_summed_entropy(make_context):
    """Classes 0 and 1 are in the batch, 2 and 3 are not; the last row is padding."""
    context = make_context()
    batch = context.batch._replace(labels=jnp.array([0, 1, 0, 1, 1, 0, 1, 3], jnp.int32))
    context = dataclasses.replace(context, batch=batch)
    own = np.asarray(context.outputs.logits, np.float64)[:7]
    teacher = np.asarray(context.client.teacher(batch).logits, np.float64)[:7]

    def softmax(logits):
        return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

    target, student = softmax(teacher[:, 2:] / 2), softmax(own[:, 2:] / 2)
    divergence = (target * np.log(target / student)).sum(1).mean()
    present = softmax(own[:, :2])
    expected = 0.7 * divergence + 0.002 * (present * np.log(present)).sum()
    np.testing.assert_allclose(balancefl(lam=0.7).regularizer(context), expected, rtol=1e-4)


def test_noise_has_the_mean_covariance_within_classes(make_client, tiny_model, make_params):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 20, 4])
    x = jnp.asarray(rng.normal(size=(64, 6)) + labels[:, None], jnp.float32)
    batch = Batch(x, jnp.asarray(labels), jnp.ones(64, bool))
    client = make_client(
        class_counts=jnp.array([40.0, 20.0, 4.0, 0.0]),
        num_samples=jnp.float32(64),
        fold=lambda fn, init, key=None: fn(init, batch),
    )
    draws = np.asarray(draw_noise(client, 20_000), np.float64)
    features = np.asarray(tiny_model.apply(make_params(), {}, x)[0].features, np.float64)
    expected = sum(n / 64 * np.cov(features[labels == c].T) for c, n in enumerate((40, 20, 4)))
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.05 * expected.max())
    np.testing.assert_allclose(draws.mean(0), 0.0, atol=0.02)


def test_it_brings_adam_whose_state_is_kept(simulate):
    done = simulate("balancefl", rounds=2, participation=0.5, client_lr=0.05)
    counts = np.asarray(done.state.clients.optimizer[0][0].count[0])
    assert (counts > 0).any()


def test_scaffold_cannot_count_adams_steps(simulate):
    with pytest.raises(ValueError, match="scaffold.* counts the steps of SGD"):
        simulate("balancefl+scaffold")
