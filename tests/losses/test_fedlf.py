"""FedLF: each term against a plain formula, and the properties that follow from it."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses

# Two classes with a single row, and five with six.
skewed = st.sampled_from([2, 5]).flatmap(
    lambda c: st.lists(st.sampled_from([0, 1, 3, 50, 10**6]), min_size=c, max_size=c).filter(any)
)


def adaptive(logits, labels, counts, alpha=0.25):
    moved = (counts / counts.max() * (1 - alpha) + alpha) * logits
    return np.log(np.exp(moved).sum(axis=1)) - moved[np.arange(len(labels)), labels]


def center(features, labels, centers, present, max_margin=100.0, literal_margin=False):
    held = np.flatnonzero(present)
    widest = max(np.linalg.norm(centers[a] - centers[b]) for a in held for b in held)
    margin = min(widest, max_margin) * (-1 if literal_margin else 1)
    result = []
    for h, y in zip(features, labels, strict=True):
        own = np.exp(-np.linalg.norm(h - centers[y]) - margin)
        others = sum(np.exp(-np.linalg.norm(h - centers[c])) for c in held if c != y)
        result.append(-np.log(own / (own + others)))
    return np.array(result)


def decorrelation(features, where=None, normalize=False):
    x = features if where is None else features[where]
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-4)
    total = np.sum((x.T @ x / len(x)) ** 2)
    return total / x.shape[1] ** 2 if normalize else total


def whole(logits, features, labels, counts, centers, present, where, alpha, lam, gamma, **options):
    return (
        adaptive(logits[where], labels[where], counts, alpha).mean()
        + lam * center(features[where], labels[where], centers, present, **options).mean()
        + gamma * decorrelation(features, where)
    )


@settings(max_examples=10, deadline=None, derandomize=True)
@given(counts=skewed, seed=st.integers(0, 99))
def test_terms_equal_their_formulas(agrees, problem, counts, seed):
    p = problem(counts=counts, size=6 if len(counts) > 2 else 1, seed=seed, scale=3.0)
    agrees(losses.adaptive_logit, adaptive, p["logits"], p["labels"], p["counts"])
    args = p["features"], p["labels"], p["centers"], p["present"]
    agrees(losses.class_center, center, *args)
    agrees(losses.class_center, center, *args, max_margin=2.0, literal_margin=True)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(shape=st.sampled_from([(6, 3), (3, 6)]), seed=st.integers(0, 99))
def test_decorrelation_equals_its_formula_for_wide_and_tall_batches(agrees, problem, shape, seed):
    p = problem(size=shape[0], width=shape[1], seed=seed, scale=3.0)
    agrees(losses.feature_decorrelation, decorrelation, p["features"], normalize=True)
    if shape[0] > 3:
        agrees(losses.feature_decorrelation, decorrelation, p["features"], where=p["where"])


def test_whole_equals_its_formula_with_padded_rows(agrees, problem):
    p = problem(seed=5)
    args = (p[key] for key in ("logits", "features", "labels", "counts", "centers", "present"))
    options = {"alpha": 0.5, "lam": 0.3, "gamma": 0.2, "max_margin": 1.5, "literal_margin": True}
    agrees(losses.fedlf, whole, *args, where=p["where"], **options)


def test_margin_makes_the_center_loss_larger_and_the_printed_sign_smaller(problem):
    p = problem()
    args = p["features"], p["labels"], p["centers"], p["present"]
    without = np.asarray(losses.class_center(*args, max_margin=0.0))
    assert (np.asarray(losses.class_center(*args)) > without).all()
    assert (np.asarray(losses.class_center(*args, literal_margin=True)) < without).all()


def test_absent_centers_do_not_matter(problem):
    p = problem()
    moved = np.where(p["present"][:, None], p["centers"], np.nan)
    args = p["features"], p["labels"]
    value = losses.class_center(*args, p["centers"], p["present"])
    np.testing.assert_array_equal(losses.class_center(*args, moved, p["present"]), value)


@pytest.mark.parametrize("held", [(), (2,)])
def test_fewer_than_two_centers_give_zero(problem, held):
    p = problem()
    present = np.isin(np.arange(5), held)
    value = losses.class_center(p["features"], p["labels"], p["centers"], present)
    np.testing.assert_array_equal(value, 0)


def test_centers_receive_no_gradient(problem):
    p = problem()
    gradient = jax.grad(
        lambda c: losses.class_center(p["features"], p["labels"], c, p["present"]).sum()
    )
    np.testing.assert_array_equal(gradient(p["centers"]), 0)


def test_uncorrelated_columns_leave_the_diagonal_only():
    features = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    np.testing.assert_allclose(losses.feature_decorrelation(features), 2, rtol=1e-6)
    np.testing.assert_allclose(losses.feature_decorrelation(features, normalize=True), 0.5)


def test_decorrelation_ignores_scale_and_shift_of_columns(problem):
    p = problem()
    value = losses.feature_decorrelation(p["features"])
    moved = losses.feature_decorrelation(p["features"] * np.array([2.0, 30.0, 0.5]) + 3)
    np.testing.assert_allclose(moved, value, rtol=1e-4)


def test_constant_columns_add_nothing_to_the_decorrelation(problem):
    p = problem()
    constant = np.full((6, 2), 0.1, np.float32)
    both = np.concatenate([p["features"], constant], axis=1)
    value = losses.feature_decorrelation(p["features"])
    np.testing.assert_allclose(losses.feature_decorrelation(both), value, rtol=1e-4)
    assert np.abs(jax.grad(losses.feature_decorrelation)(both)).max() < 100
