"""MOON and FedMR against plain formulas."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses


def contrastive(z, z_global, z_previous, temperature=0.5):
    def cosine(a, b):
        return a @ b / np.sqrt(a @ a) / np.sqrt(b @ b)

    result = []
    for own, near, far in zip(z, z_global, z_previous, strict=True):
        top = np.exp(cosine(own, near) / temperature)
        result.append(-np.log(top / (top + np.exp(cosine(own, far) / temperature))))
    return np.array(result)


def reshaping(features, labels, num_classes, where=None):
    keep = np.ones(len(labels), bool) if where is None else where
    width, total, number = features.shape[1], 0.0, 0
    for c in range(num_classes):
        rows = features[keep & (labels == c)]
        if len(rows) < 2:
            continue
        rows = (rows - rows.mean(axis=0)) / np.sqrt(1e-8 + rows.var(axis=0, ddof=1))
        gram = rows.T @ rows
        total += np.mean(gram[~np.eye(width, dtype=bool)] ** 2)
        number += len(rows)
    return total / number if number else 0.0


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), size=st.sampled_from([1, 6]))
def test_contrast_equals_its_formula(agrees, problem, seed, size):
    p = problem(seed=seed, size=size)
    agrees(losses.model_contrastive, contrastive, p["features"], p["near"], p["far"])
    agrees(
        losses.model_contrastive,
        contrastive,
        p["features"],
        p["near"],
        p["far"],
        temperature=0.1,
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), shape=st.sampled_from([(9, 2), (9, 16)]))
def test_reshaping_equals_its_formula(agrees, problem, seed, shape):
    p = problem(seed=seed, size=shape[0], width=shape[1], scale=2.0)
    args = p["features"], p["labels"]
    agrees(losses.manifold_reshaping, reshaping, *args, num_classes=5)
    agrees(losses.manifold_reshaping, reshaping, *args, num_classes=5, where=p["where"])


def test_contrast_of_equal_models_is_log_two(problem):
    p = problem()
    value = losses.model_contrastive(p["features"], p["near"], p["near"])
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)


def test_contrast_ignores_length_and_gives_no_gradient_to_other_models(problem):
    p = problem()
    value = losses.model_contrastive(p["features"], p["near"], p["far"])
    moved = losses.model_contrastive(5 * p["features"], 0.1 * p["near"], 3 * p["far"])
    np.testing.assert_allclose(moved, value, rtol=1e-5)
    for argument in (1, 2):
        gradient = jax.grad(lambda *z: losses.model_contrastive(*z).sum(), argument)
        np.testing.assert_array_equal(gradient(p["features"], p["near"], p["far"]), 0)


def test_zero_vectors_have_no_direction(problem):
    p = problem()
    zero = np.zeros_like(p["features"])
    value = losses.model_contrastive(zero, p["near"], p["far"])
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)
    gradient = jax.grad(lambda z: losses.model_contrastive(z, p["near"], p["far"]).sum())(zero)
    np.testing.assert_array_equal(gradient, 0)


def test_reshaping_without_a_pair_or_with_one_feature_is_zero(problem):
    p = problem()
    alone = np.arange(6) % 5
    value = losses.manifold_reshaping(p["features"], alone, 5, where=np.arange(6) < 5)
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_array_equal(losses.manifold_reshaping(p["features"][:, :1], alone, 5), 0)


def test_reshaping_ignores_scale_shift_and_names_of_classes(problem):
    p = problem(size=8)
    value = losses.manifold_reshaping(p["features"], p["labels"], 5)
    moved = p["features"] * np.array([2.0, 30.0, 0.5]) + 3 * p["labels"][:, None]
    again = losses.manifold_reshaping(moved, (p["labels"] + 1) % 5, 5)
    np.testing.assert_allclose(again, value, rtol=1e-3)
