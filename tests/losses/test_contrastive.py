"""Contrastive losses against plain formulas."""

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
