"""FedUV's two terms against plain formulas."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses


def variance(logits, where=None):
    f = logits if where is None else logits[where]
    q = np.exp(f - f.max(axis=1, keepdims=True))
    q /= q.sum(axis=1, keepdims=True)
    return np.mean(np.maximum(0, q.shape[1] ** -0.5 - q.std(axis=0, ddof=1)))


def uniformity(features, where=None, detach_sigma=False):
    h = features if where is None else features[where]
    square = [np.sum((h[i] - h[j]) ** 2) for i in range(len(h)) for j in range(i)]
    positive = sorted(s for s in square if s > 0)
    sigma = positive[(len(positive) - 1) // 2] if positive else 1.0
    return np.mean(np.exp(-np.array(square) / sigma))


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), size=st.sampled_from([5, 6]))
def test_equal_their_formulas(agrees, problem, seed, size):
    p = problem(seed=seed, size=size, scale=2.0)
    agrees(losses.classifier_variance, variance, p["logits"])
    agrees(losses.classifier_variance, variance, p["logits"], where=p["where"])
    agrees(losses.feature_uniformity, uniformity, p["features"])
    agrees(losses.feature_uniformity, uniformity, p["features"], where=p["where"])
    agrees(losses.feature_uniformity, uniformity, p["features"], detach_sigma=True)


def test_one_certain_sample_of_each_class_has_the_wanted_variance():
    np.testing.assert_allclose(losses.classifier_variance(1e4 * np.eye(7)), 0, atol=1e-6)


def test_equal_predictions_have_the_largest_loss_and_no_gradient():
    logits = np.ones((4, 9), np.float32)
    value, gradient = jax.jit(jax.value_and_grad(losses.classifier_variance))(logits)
    np.testing.assert_allclose(value, 1 / 3, rtol=1e-6)
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("loss", [losses.classifier_variance, losses.feature_uniformity])
def test_one_row_gives_zero_and_no_gradient(problem, loss):
    p = problem()
    one = np.arange(6) == 4
    value, gradient = jax.jit(jax.value_and_grad(loss))(p["logits"], where=one)
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_array_equal(gradient, 0)
    np.testing.assert_array_equal(loss(p["logits"][:1]), 0)


def test_equidistant_features_give_the_inverse_of_e():
    np.testing.assert_allclose(losses.feature_uniformity(3 * np.eye(5)), np.exp(-1), rtol=1e-6)


def test_uniformity_ignores_scale_and_shift(problem):
    p = problem()
    value = losses.feature_uniformity(p["features"])
    moved = losses.feature_uniformity(7 * p["features"] + 2)
    np.testing.assert_allclose(moved, value, rtol=1e-4)


@pytest.mark.parametrize("detached", [False, True])
def test_the_gradient_for_tiny_features_is_that_of_scaled_ones(problem, detached):
    """One over the squared width of the kernel overflows float32."""
    h = problem()["features"]
    gradient = jax.grad(functools.partial(losses.feature_uniformity, detach_sigma=detached))
    expected = np.asarray(gradient(h))
    found = np.asarray(gradient(1e-12 * h)) * 1e-12
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_equal_features_count_as_pairs_but_not_for_the_median():
    features = np.array([[0.0], [0.0], [1.0], [3.0]])
    found = losses.feature_uniformity(features)
    # Squared distances 0, 1, 1, 4, 9, 9: the lower median of the five that differ from 0 is 4.
    expected = (1 + 2 * np.exp(-0.25) + np.exp(-1) + 2 * np.exp(-2.25)) / 6
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_detached_sigma_changes_the_gradient_only(problem, double):
    p = problem()
    h = p["features"].astype(np.float64)
    with double():
        free, fixed = (
            jax.jit(jax.grad(functools.partial(losses.feature_uniformity, detach_sigma=detached)))(
                h
            )
            for detached in (False, True)
        )
    # The loss ignores the scale of features, so their gradient is orthogonal to them only if the
    # gradient through sigma is kept.
    np.testing.assert_allclose(np.vdot(free, h), 0, atol=1e-12)
    assert np.vdot(fixed, h) < -0.1
