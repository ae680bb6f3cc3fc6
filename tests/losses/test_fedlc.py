"""FedLC against a plain formula, and the properties that follow from it."""

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


def reference(logits, labels, counts, tau=1.0, min_count=None, form="code"):
    result = []
    for f, y in zip(logits, labels, strict=True):
        top, bottom = 0.0, 0.0
        for c, n in enumerate(counts):
            n = n if min_count is None else max(n, min_count)
            weight = np.exp(f[c] - tau * n**-0.25) if n > 0 else 0.0
            top += weight * (c == y)
            bottom += weight * (c != y or form == "code")
        result.append(-np.log(top / bottom) if top > 0 and bottom > 0 else 0.0)
    return np.array(result)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(counts=skewed, seed=st.integers(0, 99))
def test_equals_the_formula(agrees, problem, counts, seed):
    p = problem(counts=counts, size=6 if len(counts) > 2 else 1, seed=seed, scale=3.0)
    args = p["logits"], p["labels"], p["counts"]
    agrees(losses.fedlc, reference, *args)
    agrees(losses.fedlc, reference, *args, tau=0.1, min_count=1e-5)
    agrees(losses.fedlc, reference, *args, tau=0.5, form="paper")


def test_hand_computed_margin():
    # Margins 1/2 and 1: the logits become 0.5 and -1, the third class is gone.
    value = losses.fedlc(np.array([1.0, 0.0, 9.0]), 0, np.array([16, 1, 0]))
    np.testing.assert_allclose(value, np.log1p(np.exp(-1.5)), rtol=1e-6)


def test_equal_counts_give_cross_entropy(problem):
    p = problem(counts=(4, 4, 4, 4, 4))
    plain = losses.cross_entropy(p["logits"], p["labels"])
    np.testing.assert_allclose(
        losses.fedlc(p["logits"], p["labels"], p["counts"]), plain, rtol=1e-5
    )


@pytest.mark.parametrize("form", ["paper", "code"])
def test_shift_of_all_logits_changes_nothing(problem, form):
    p = problem()
    value = losses.fedlc(p["logits"], p["labels"], p["counts"], form=form)
    moved = losses.fedlc(p["logits"] + 7, p["labels"], p["counts"], form=form)
    np.testing.assert_allclose(moved, value, rtol=1e-4, atol=1e-5)


def test_order_of_classes_does_not_matter(problem):
    p = problem()
    order = np.array([3, 0, 4, 1, 2])
    value = losses.fedlc(p["logits"], p["labels"], p["counts"])
    labels = np.argsort(order)[p["labels"]]
    moved = losses.fedlc(p["logits"][:, order], labels, p["counts"][order])
    np.testing.assert_allclose(moved, value, rtol=1e-5, atol=1e-6)


def test_vacant_classes_receive_no_gradient(problem):
    p = problem()
    gradient = jax.grad(lambda x: losses.fedlc(x, p["labels"], p["counts"]).sum())(p["logits"])
    vacant = p["counts"] == 0
    np.testing.assert_array_equal(np.asarray(gradient)[:, vacant], 0)
    assert (np.asarray(gradient)[:, ~vacant] != 0).all()


def test_tiny_min_count_is_nearly_dropping_out(problem):
    p = problem()
    dropped = losses.fedlc(p["logits"], p["labels"], p["counts"])
    floored = losses.fedlc(p["logits"], p["labels"], p["counts"], min_count=1e-8)
    np.testing.assert_allclose(floored, dropped, rtol=1e-5)


def test_printed_form_has_no_lower_bound():
    value = losses.fedlc(np.array([100.0, 0.0]), 0, np.array([1, 1]), form="paper")
    np.testing.assert_allclose(value, -100)


def test_a_label_of_a_vacant_class_has_a_proper_cross_entropy():
    """The class counts as one sample for its own row and stays out of all others."""
    logits, counts = np.array([[1.0, 0.0, 2.0], [1.0, 0.0, 2.0]]), np.array([16, 1, 0])
    value = losses.fedlc(logits, np.array([2, 0]), counts)
    with_one = reference(logits[:1], [2], np.array([16, 1, 1]))[0]
    np.testing.assert_allclose(value, [with_one, np.log1p(np.exp(-1.5))], rtol=1e-5)
    gradient = jax.grad(lambda x: losses.fedlc(x, np.array([2, 0]), counts).sum())(-logits)
    assert gradient[0, 2] < 0 and gradient[1, 2] == 0


def test_a_negative_tau_is_refused_unless_it_is_traced():
    args = np.zeros((1, 2)), np.array([0]), np.array([1, 2])
    with pytest.raises(ValueError, match="tau must be at least 0, got -1"):
        losses.fedlc(*args, tau=-1)
    jax.jit(lambda tau: losses.fedlc(*args, tau=tau))(-1.0)


def test_tau_can_be_mapped_and_learnt(problem):
    p = problem()
    args = p["logits"], p["labels"], p["counts"]
    taus = np.array([0.1, 0.5, 1.0], np.float32)
    together = jax.vmap(lambda tau: losses.fedlc(*args, tau=tau))(taus)
    for tau, row in zip(taus, together, strict=True):
        np.testing.assert_allclose(row, losses.fedlc(*args, tau=float(tau)), rtol=1e-5)
    assert np.isfinite(jax.grad(lambda tau: losses.fedlc(*args, tau=tau).sum())(0.5))
