"""FedGR: the softmax and the regulariser against plain formulas."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses

# Two classes with a single row, and five with six.
skewed = st.sampled_from([2, 5]).flatmap(
    lambda c: st.lists(st.sampled_from([0, 1, 3, 50]), min_size=c, max_size=c).filter(any)
)


FORMS = ("paper", "code", "normalized", "sqrt")


def factor(counts, form):
    """The factor of each class; NaN for a class that drops out."""
    if form == "code":
        # Ratio to the largest class, zeros replaced by 4, inverse, divided by its maximum.
        ratio = counts / counts.max()
        inverse = 1 / np.where(ratio == 0, 4, ratio)
        return inverse / inverse.max()
    present = counts > 0
    gamma = counts.sum() / np.where(present, counts, np.nan)
    if form != "paper":
        gamma = gamma / present.sum()
    return np.sqrt(gamma) if form == "sqrt" else gamma


def unbalanced(logits, labels, counts, form):
    gamma = factor(counts, form)
    held = np.flatnonzero(np.isfinite(gamma))
    result = []
    for f, y in zip(logits, labels, strict=True):
        scores = gamma[held] * f[held]
        top = scores.max()
        result.append(np.log(np.sum(np.exp(scores - top))) + top - gamma[y] * f[y])
    return np.array(result)


def gravitation(heads, present, anchors=None):
    anchors = heads if anchors is None else anchors
    num_clients, num_classes, _ = heads.shape
    total = 0.0
    for k in range(num_clients):
        for i in np.flatnonzero(present[k]):
            v = anchors[k, i]
            same, other = 0.0, 0.0
            for z in range(num_clients):
                for j in range(num_classes):
                    if z != k and present[z, j]:
                        force = np.exp(heads[z, j] @ v)
                        same += force * (i == j)
                        other += force * (i != j)
            if same:
                total += np.log(same / (same + other))
            total += np.log(np.exp(v @ v) / (np.exp(v @ v) + other))
    return -total


@settings(max_examples=10, deadline=None, derandomize=True)
@given(counts=skewed, seed=st.integers(0, 99))
def test_softmax_equals_its_formula(agrees, problem, counts, seed):
    p = problem(counts=counts, size=6 if len(counts) > 2 else 1, seed=seed)
    args = p["logits"], p["labels"], p["counts"]
    for form in FORMS:
        agrees(losses.unbalanced_softmax, unbalanced, *args, form=form)


@pytest.mark.parametrize("form", FORMS)
def test_softmax_depends_on_the_share_of_counts_only(problem, form):
    p = problem()
    value = losses.unbalanced_softmax(p["logits"], p["labels"], p["counts"], form=form)
    shares = p["counts"] / p["counts"].sum()
    again = losses.unbalanced_softmax(p["logits"], p["labels"], shares, form=form)
    np.testing.assert_allclose(again, value, rtol=1e-5, atol=1e-5)


def test_normalized_factor_has_mean_one_over_the_samples():
    counts = np.array([7, 0, 2, 1])
    gamma = np.nan_to_num(factor(counts, "normalized"))
    np.testing.assert_allclose(np.average(gamma, weights=counts), 1)


def test_a_label_of_a_vacant_class_counts_as_one_sample_of_it():
    logits, counts = np.array([0.5, 1.0, 0.1]), np.array([3, 1, 0])
    value = losses.unbalanced_softmax(logits, 2, counts, form="paper")
    scores = np.array([4 / 3, 4, 4]) * logits
    np.testing.assert_allclose(value, np.log(np.exp(scores).sum()) - scores[2], rtol=1e-6)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), clients=st.sampled_from([1, 4]))
def test_gravitation_equals_its_formula(agrees, problem, seed, clients):
    p = problem(clients=clients, seed=seed)
    agrees(losses.gravitation, gravitation, p["heads"], p["held"])


def test_gravitation_gradient_moves_the_others_around_fixed_anchors(problem, double):
    p = problem(seed=2)
    heads, held = p["heads"].astype(np.float64), p["held"]
    direction, step = np.random.default_rng(0).normal(size=heads.shape), 1e-6
    ahead = gravitation(heads + step * direction, held, anchors=heads)
    behind = gravitation(heads - step * direction, held, anchors=heads)
    with double():
        gradient = np.asarray(jax.jit(jax.grad(losses.gravitation))(heads, held))
    np.testing.assert_allclose(np.vdot(gradient, direction), (ahead - behind) / (2 * step), 1e-6)


def test_gravitation_skips_absent_rows(problem):
    p = problem()
    spoilt = np.where(p["held"][..., None], p["heads"], np.nan)
    value, gradient = jax.jit(jax.value_and_grad(losses.gravitation))(spoilt, p["held"])
    np.testing.assert_array_equal(value, losses.gravitation(p["heads"], p["held"]))
    np.testing.assert_array_equal(np.asarray(gradient)[~p["held"]], 0)


def test_gravitation_of_one_class_is_zero(problem):
    p = problem()
    only = np.zeros_like(p["held"])
    only[:, 1] = True
    np.testing.assert_allclose(losses.gravitation(p["heads"], only), 0, atol=1e-6)


def test_gravitation_does_not_overflow_for_long_rows(problem):
    p = problem(scale=300.0)
    value, gradient = jax.jit(jax.value_and_grad(losses.gravitation))(p["heads"], p["held"])
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_gravitation_ignores_the_order_of_clients_and_classes(problem):
    p = problem()
    clients, classes = np.array([2, 0, 3, 1]), np.array([3, 0, 4, 1, 2])
    value = losses.gravitation(p["heads"], p["held"])
    moved = losses.gravitation(p["heads"][clients][:, classes], p["held"][clients][:, classes])
    np.testing.assert_allclose(moved, value, rtol=1e-5)
