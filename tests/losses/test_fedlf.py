"""FedLF's adaptive logits and class centres against plain formulas."""

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


def center(features, labels, centers, present, max_margin=100.0, form="code"):
    if form == "code":
        centers = np.where(present[:, None], centers, 1e-8)
        present = np.ones_like(present)
    held = np.flatnonzero(present)
    widest = max(np.linalg.norm(centers[a] - centers[b]) for a in held for b in held)
    margin = min(widest, max_margin) * (1 if form == "code" else -1)
    result = []
    for h, y in zip(features, labels, strict=True):
        own = np.exp(-np.linalg.norm(h - centers[y]) - margin)
        others = sum(np.exp(-np.linalg.norm(h - centers[c])) for c in held if c != y)
        result.append(-np.log(own / (own + others)))
    return np.array(result)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(counts=skewed, seed=st.integers(0, 99))
def test_terms_equal_their_formulas(agrees, problem, counts, seed):
    p = problem(counts=counts, size=6 if len(counts) > 2 else 1, seed=seed, scale=3.0)
    agrees(losses.adaptive_logit, adaptive, p["logits"], p["labels"], p["counts"])
    args = p["features"], p["labels"], p["centers"], p["present"]
    agrees(losses.class_center, center, *args)
    agrees(losses.class_center, center, *args, max_margin=2.0, form="paper")


def test_margin_makes_the_center_loss_larger_and_the_printed_sign_smaller(problem):
    p = problem(counts=(1, 2, 3, 4, 5))
    args = p["features"], p["labels"], p["centers"], p["present"]
    without = np.asarray(losses.class_center(*args, max_margin=0.0))
    assert (np.asarray(losses.class_center(*args)) > without).all()
    assert (np.asarray(losses.class_center(*args, form="paper")) < without).all()


@pytest.mark.parametrize("form", ["paper", "code"])
def test_rows_of_absent_centers_are_not_read(problem, form):
    p = problem()
    moved = np.where(p["present"][:, None], p["centers"], np.nan)
    args = p["features"], p["labels"]
    value = losses.class_center(*args, p["centers"], p["present"], form=form)
    again = losses.class_center(*args, moved, p["present"], form=form)
    np.testing.assert_array_equal(again, value)


def test_vacant_centers_stay_in_the_softmax_and_in_the_margin_of_the_code():
    """One class, far from the origin: the other one is 1e-8 in every coordinate."""
    features, centers = np.array([[3.0, 4.0]]), np.array([[3.0, 4.0], [9.0, 9.0]])
    value = losses.class_center(features, np.array([0]), centers, np.array([True, False]))
    np.testing.assert_allclose(value, np.log(2), rtol=1e-5)  # d_y + Q = 0 + 5 = d of the vacant.


def test_printed_form_gives_zero_for_a_row_whose_class_has_no_center(problem):
    p = problem()
    args = p["features"], np.full(6, 1), p["centers"], p["present"]
    np.testing.assert_array_equal(losses.class_center(*args, form="paper"), 0)
    assert (np.asarray(losses.class_center(*args)) > 0).all()


@pytest.mark.parametrize("held", [(), (2,)])
def test_fewer_than_two_centers_give_zero_in_the_printed_form(problem, held):
    p = problem()
    present = np.isin(np.arange(5), held)
    args = p["features"], p["labels"], p["centers"], present
    np.testing.assert_array_equal(losses.class_center(*args, form="paper"), 0)
