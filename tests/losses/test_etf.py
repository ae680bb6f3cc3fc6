"""The simplex frame by its properties, and logits from normalised features."""

import jax
import numpy as np
import pytest

from fedjax_skew import losses


def frame(matrix):
    num_classes = matrix.shape[1]
    q, _ = np.linalg.qr(matrix)
    center = np.eye(num_classes) - np.ones((num_classes, num_classes)) / num_classes
    return np.sqrt(num_classes / (num_classes - 1)) * q @ center


def cosines(features, weights, scale=1.0):
    return np.array([scale * h @ weights / np.sqrt(np.sum(h**2)) for h in features])


@pytest.mark.parametrize("shape", [(2, 2), (10, 10), (64, 10)])
def test_frame_equals_its_formula(agrees, shape):
    agrees(losses.simplex_etf, frame, np.random.default_rng(0).uniform(size=shape))


@pytest.mark.parametrize("shape", [(2, 2), (10, 10), (64, 10)])
def test_columns_are_units_that_sum_to_zero_with_equal_cosines(shape):
    found = np.asarray(losses.simplex_etf(jax.random.uniform(jax.random.key(3), shape)))
    num_classes = shape[1]
    expected = np.full((num_classes, num_classes), -1 / (num_classes - 1))
    np.fill_diagonal(expected, 1)
    np.testing.assert_allclose(found.T @ found, expected, atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-5)


def test_a_singular_matrix_gives_a_frame_too():
    found = np.asarray(losses.simplex_etf(np.ones((5, 3))))
    np.testing.assert_allclose(np.square(found).sum(axis=0), 1, rtol=1e-5)


def test_logits_equal_their_formula(agrees, problem):
    p = problem()
    agrees(losses.cosine_logits, cosines, p["features"], p["columns"])
    agrees(losses.cosine_logits, cosines, p["features"], p["columns"], scale=20.0)


def test_logits_ignore_the_length_of_features_and_take_any_leading_axes(problem):
    p = problem()
    value = losses.cosine_logits(p["features"], p["columns"])
    moved = losses.cosine_logits(9 * p["features"].reshape(2, 3, 3), p["columns"])
    np.testing.assert_allclose(moved.reshape(6, 5), value, rtol=1e-5)
    zero = losses.cosine_logits(np.zeros(3), p["columns"])
    np.testing.assert_array_equal(zero, 0)


def test_the_scale_can_be_learnt(problem):
    p = problem()

    def loss(scale):
        logits = losses.cosine_logits(p["features"], p["columns"], scale=scale)
        return losses.cross_entropy(logits, p["labels"]).mean()

    logits = cosines(p["features"], p["columns"], 2.0)
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    q[np.arange(6), p["labels"]] -= 1
    expected = np.mean(np.sum(q * logits / 2.0, axis=1))
    np.testing.assert_allclose(jax.grad(loss)(2.0), expected, rtol=1e-5)
