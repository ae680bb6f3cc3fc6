"""Softmax losses against plain formulas and known identities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses

# Two classes with a single row, and five with six.
skewed = st.sampled_from([2, 5]).flatmap(
    lambda c: st.lists(st.sampled_from([0, 1, 3, 50, 10**6]), min_size=c, max_size=c).filter(any)
)
drawn = given(counts=skewed, seed=st.integers(0, 99))
quick = settings(max_examples=10, deadline=None, derandomize=True)


def nll(logits, labels):
    exact = np.array([f - np.log(np.sum(np.exp(f - f.max()))) - f.max() for f in logits])
    return -exact[np.arange(len(labels)), labels]


def balanced(logits, labels, counts, tau=1.0, eps=0.0):
    with np.errstate(divide="ignore"):
        return nll(logits + tau * np.log(counts / counts.sum() + eps), labels)


def restricted(logits, labels, counts, alpha=0.5, form="paper"):
    hard = np.where(counts > 0, 1.0, alpha)
    scale = alpha + (1 - alpha) * counts / counts.max() if form == "code" else hard
    return nll(scale * logits, labels)


def focal(logits, labels, gamma=2.0, alpha=0.25):
    q = np.exp(-nll(logits, labels))
    return -alpha * (1 - q) ** gamma * np.log(q)


def calfat(logits, labels, counts, scale=10.0):
    counts = np.where(counts == 0, 1, counts)
    return nll(scale * (logits + 0.1 * np.log(counts + 1e-7)), labels)


@quick
@drawn
def test_equal_their_formulas(agrees, problem, counts, seed):
    p = problem(counts=counts, size=6 if len(counts) > 2 else 1, seed=seed, scale=3.0)
    logits, labels, counts = p["logits"], p["labels"], p["counts"]
    agrees(losses.cross_entropy, nll, logits, labels)
    agrees(losses.focal, focal, logits, labels)
    agrees(losses.focal, focal, logits, labels, gamma=0.5, alpha=1.0)
    agrees(losses.balanced_softmax, balanced, logits, labels, counts)
    agrees(losses.balanced_softmax, balanced, logits, labels, counts, tau=0.5, eps=1e-9)
    agrees(losses.restricted_softmax, restricted, logits, labels, counts)
    agrees(losses.restricted_softmax, restricted, logits, labels, counts, alpha=0.25, form="code")
    agrees(losses.calfat, calfat, logits, labels, counts)


@pytest.mark.parametrize(
    "loss",
    [
        losses.balanced_softmax,
        lambda *args: losses.restricted_softmax(*args, form="code"),
        losses.restricted_softmax,
        losses.adaptive_logit,
        lambda *args: losses.unbalanced_softmax(*args, form="code"),
        lambda *args: losses.unbalanced_softmax(*args, form="normalized"),
        lambda *args: losses.unbalanced_softmax(*args, form="sqrt"),
    ],
)
def test_equal_counts_give_cross_entropy(problem, loss):
    p = problem(counts=(4, 4, 4, 4, 4))
    plain = losses.cross_entropy(p["logits"], p["labels"])
    value = loss(p["logits"], p["labels"], p["counts"])
    np.testing.assert_allclose(value, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "loss", [losses.cross_entropy, losses.focal, losses.balanced_softmax, losses.calfat]
)
def test_shift_of_all_logits_changes_nothing(problem, loss):
    p = problem()
    counts = () if loss in (losses.cross_entropy, losses.focal) else (p["counts"],)
    value = loss(p["logits"], p["labels"], *counts)
    moved = loss(p["logits"] + 7, p["labels"], *counts)
    np.testing.assert_allclose(moved, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "loss", [losses.balanced_softmax, losses.restricted_softmax, losses.calfat]
)
def test_order_of_classes_does_not_matter(problem, loss):
    p = problem()
    order = np.array([3, 0, 4, 1, 2])
    value = loss(p["logits"], p["labels"], p["counts"])
    labels = np.argsort(order)[p["labels"]]
    moved = loss(p["logits"][:, order], labels, p["counts"][order])
    np.testing.assert_allclose(moved, value, rtol=1e-5, atol=1e-6)


def test_balanced_softmax_depends_on_the_share_of_counts_only(problem):
    p = problem()
    value = losses.balanced_softmax(p["logits"], p["labels"], p["counts"])
    scaled = losses.balanced_softmax(p["logits"], p["labels"], 0.01 * p["counts"])
    np.testing.assert_allclose(scaled, value, rtol=1e-5)


def test_restricted_softmax_scales_only_missing_classes():
    logits, counts = np.array([2.0, 2.0, 2.0]), np.array([9, 1, 0])
    value = losses.restricted_softmax(logits, 0, counts, alpha=0.5)
    np.testing.assert_allclose(value, np.log(2 + np.exp(-1.0)), rtol=1e-6)


def test_focal_without_focus_is_scaled_cross_entropy(problem):
    p = problem()
    value = losses.focal(p["logits"], p["labels"], gamma=0.0, alpha=0.25)
    plain = losses.cross_entropy(p["logits"], p["labels"])
    np.testing.assert_allclose(value, 0.25 * plain, rtol=1e-6)


def test_leading_axes_are_free(problem):
    p = problem()
    value = losses.balanced_softmax(p["logits"], p["labels"], p["counts"])
    nested = losses.balanced_softmax(
        p["logits"].reshape(2, 3, 5), p["labels"].reshape(2, 3), p["counts"]
    )
    np.testing.assert_allclose(nested, value.reshape(2, 3), rtol=1e-6)
    single = losses.balanced_softmax(p["logits"][0], p["labels"][0], p["counts"])
    np.testing.assert_allclose(single, value[0], rtol=1e-6)


def test_small_label_dtypes_reach_every_class():
    logits = np.zeros((1, 300), np.float32)
    logits[0, 256] = 50.0
    assert losses.cross_entropy(logits, np.array([0], np.uint8))[0] > 49


def test_a_label_of_a_vacant_class_counts_as_one_sample_of_it():
    logits, counts = np.array([0.5, 1.0, 2.0]), np.array([3, 1, 0])
    value = losses.balanced_softmax(logits, 2, counts)
    np.testing.assert_allclose(value, balanced(logits[None], [2], np.array([3, 1, 1]))[0], 1e-6)
    alone = losses.balanced_softmax(logits, 2, np.zeros(3))
    np.testing.assert_array_equal(alone, 0)


def test_tau_zero_is_the_cross_entropy_among_present_classes(problem):
    p = problem()
    value = losses.balanced_softmax(p["logits"], p["labels"], p["counts"], tau=0.0)
    hidden = np.where(p["counts"] > 0, p["logits"], -np.inf).astype(np.float64)
    np.testing.assert_allclose(value, nll(hidden, p["labels"]), rtol=1e-5)
