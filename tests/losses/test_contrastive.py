"""Contrastive losses against plain formulas."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses


def cosines(features):
    unit = features / np.sqrt(np.sum(features**2, axis=1, keepdims=True))
    return unit @ unit.T


def supervised(features, labels, temperature=0.05, num_negatives=2, where=None):
    if where is not None:
        features, labels = features[where], labels[where]
    s, losses_ = cosines(features), []
    for i, y in enumerate(labels):
        positive = s[i, labels == y].min() / temperature
        negatives = np.sort(s[i, labels != y])[::-1][:num_negatives] / temperature
        losses_.append(np.log(np.exp(positive) + np.exp(negatives).sum()) - positive)
    return np.mean(losses_)


def penalty(features, labels, temperature=0.05, threshold=0.7, where=None):
    if where is not None:
        features, labels = features[where], labels[where]
    s, total = cosines(features), 0.0
    for i, y in enumerate(labels):
        others = np.delete(s[i], i)[np.delete(labels, i) == y]
        if len(others) and others.min() >= threshold:
            top = np.exp(1 / temperature)
            total += np.log(top + np.exp(others.min() / temperature)) - 1 / temperature
    return total / len(labels)


def contrastive(z, z_global, z_previous, temperature=0.5):
    def cosine(a, b):
        return a @ b / np.sqrt(a @ a) / np.sqrt(b @ b)

    result = []
    for own, near, far in zip(z, z_global, z_previous, strict=True):
        top = np.exp(cosine(own, near) / temperature)
        result.append(-np.log(top / (top + np.exp(cosine(own, far) / temperature))))
    return np.array(result)


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


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), width=st.sampled_from([2, 7]))
def test_pairs_equal_their_formulas(agrees, problem, seed, width):
    p = problem(seed=seed, width=width, size=8)
    args = p["features"], p["labels"]
    agrees(losses.supervised_contrastive, supervised, *args)
    options = {"temperature": 0.5, "num_negatives": 20, "where": p["where"]}
    agrees(losses.supervised_contrastive, supervised, *args, **options)
    agrees(losses.divergence_penalty, penalty, *args)
    options = {"temperature": 0.5, "threshold": -0.5, "where": p["where"]}
    agrees(losses.divergence_penalty, penalty, *args, **options)


def test_pairs_ignore_the_length_of_features(problem):
    p = problem()
    longer = p["features"] * np.linspace(0.1, 9, 6)[:, None].astype(np.float32)
    for loss in (losses.supervised_contrastive, losses.divergence_penalty):
        np.testing.assert_allclose(
            loss(longer, p["labels"]), loss(p["features"], p["labels"]), rtol=1e-4
        )


def test_one_class_has_nothing_to_contrast_and_distinct_classes_nothing_to_push(problem):
    p = problem()
    zeros, distinct = np.zeros(6, np.int32), np.arange(6)
    value, gradient = jax.value_and_grad(losses.supervised_contrastive)(p["features"], zeros)
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_array_equal(gradient, 0)
    np.testing.assert_array_equal(losses.divergence_penalty(p["features"], distinct), 0)


@pytest.mark.parametrize(("cosine", "pushed"), [(0.75, True), (0.65, False)])
def test_penalty_pushes_a_class_of_two_apart_above_the_threshold_only(cosine, pushed):
    features = np.array([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]], np.float32)
    gradient = np.asarray(jax.grad(losses.divergence_penalty)(features, np.array([3, 3])))
    moved = features - 1e-3 * gradient
    assert (cosines(moved)[0, 1] < cosines(features)[0, 1]) == pushed
    assert gradient.any() == pushed
