"""FedVLS: each term against a plain formula, and against the published code's form."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses

# Two classes with a single row, and five with six.
skewed = st.sampled_from([2, 5]).flatmap(
    lambda c: st.lists(st.sampled_from([0, 1, 3, 50, 10**6]), min_size=c, max_size=c).filter(any)
)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def distillation(logits, teacher, counts):
    vacant = np.flatnonzero(counts == 0)
    if not len(vacant):
        return np.zeros(len(logits))
    result = []
    for f, g in zip(logits, teacher, strict=True):
        q, qg = softmax(f[vacant]), softmax(g[vacant])
        result.append(np.sum(qg * np.log(qg / q)))
    return np.array(result)


def suppression(logits, labels, counts, where=None, published_code=False):
    keep = np.ones(len(labels), bool) if where is None else where
    f, y, share = logits[keep], labels[keep], counts / counts.sum()
    num_classes = len(counts)
    total = 0.0
    for c in range(num_classes):
        if published_code:
            moved = f[:, c] - np.log(share[c] + 1e-9) + np.log(1 / num_classes + 1e-9)
            spread = moved * (y != c)
            total += share[c] * (np.log(np.sum(np.exp(spread))) - np.log(len(y)))
        elif (y != c).any():
            total += share[c] * np.log(np.mean((y != c) * np.exp(f[:, c])))
    return total


def calibrated(logits, labels, counts, eps):
    share = counts / counts.sum()
    with np.errstate(divide="ignore"):
        moved = logits + np.log(share + eps)
    return np.mean([-np.log(softmax(f)[y]) for f, y in zip(moved, labels, strict=True)])


def whole(logits, teacher, labels, counts, lam=0.1, logit_weight=0.005, where=None, **form):
    keep = np.ones(len(labels), bool) if where is None else where
    eps = 1e-9 if form.get("published_code") else 0.0
    return (
        calibrated(logits[keep], labels[keep], counts, eps)
        + lam * distillation(logits[keep], teacher[keep], counts).mean()
        + logit_weight * suppression(logits, labels, counts, where, **form)
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(counts=skewed, seed=st.integers(0, 99))
def test_terms_equal_their_formulas(agrees, problem, counts, seed):
    p = problem(counts=counts, size=6 if len(counts) > 2 else 1, seed=seed, scale=3.0)
    logits, teacher, labels, counts = p["logits"], p["teacher"], p["labels"], p["counts"]
    agrees(losses.vacant_class_distillation, distillation, logits, teacher, counts)
    agrees(losses.logit_suppression, suppression, logits, labels, counts)
    agrees(losses.logit_suppression, suppression, logits, labels, counts, published_code=True)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(counts=skewed, seed=st.integers(0, 99))
def test_whole_equals_its_formula_with_padded_rows(agrees, problem, counts, seed):
    p = problem(counts=counts, seed=seed)
    args = p["logits"], p["teacher"], p["labels"], p["counts"]
    agrees(losses.fedvls, whole, *args, where=p["where"])
    options = {"lam": 0.5, "logit_weight": 1.0, "published_code": True}
    agrees(losses.fedvls, whole, *args, where=p["where"], **options)


def test_no_vacant_class_gives_exactly_zero_distillation(problem):
    p = problem(counts=(1, 2, 3, 4, 5))
    args = p["logits"], p["teacher"], p["counts"]
    np.testing.assert_array_equal(losses.vacant_class_distillation(*args), 0)
    gradient = jax.grad(lambda x: losses.vacant_class_distillation(x, *args[1:]).sum())(args[0])
    np.testing.assert_array_equal(gradient, 0)


def test_a_single_vacant_class_gives_exactly_zero_distillation(problem):
    p = problem(counts=(1, 2, 0, 4, 5))
    value = losses.vacant_class_distillation(p["logits"], p["teacher"], p["counts"])
    np.testing.assert_array_equal(value, 0)


def test_teacher_equal_to_student_gives_exactly_zero_distillation(problem):
    p = problem()
    value = losses.vacant_class_distillation(p["logits"], p["logits"], p["counts"])
    np.testing.assert_array_equal(value, 0)


def test_distillation_is_never_negative_and_ignores_present_classes(problem):
    p = problem(scale=3.0)
    value = losses.vacant_class_distillation(p["logits"], p["teacher"], p["counts"])
    assert (np.asarray(value) >= 0).all()
    moved = p["logits"] + 5 * (p["counts"] > 0)
    again = losses.vacant_class_distillation(moved, p["teacher"], p["counts"])
    np.testing.assert_allclose(again, value, rtol=1e-6)


def test_teacher_receives_no_gradient(problem):
    p = problem()
    gradient = jax.grad(lambda t: losses.fedvls(p["logits"], t, p["labels"], p["counts"]))
    np.testing.assert_array_equal(gradient(p["teacher"]), 0)


def test_suppression_falls_with_all_logits(problem):
    # The reason for its small weight: a shift of all logits lowers it by just that much.
    p = problem()
    value = losses.logit_suppression(p["logits"], p["labels"], p["counts"])
    moved = losses.logit_suppression(p["logits"] - 9, p["labels"], p["counts"])
    np.testing.assert_allclose(moved, value - 9, rtol=1e-5)


def test_suppression_skips_a_class_that_every_row_carries():
    logits = np.array([[1.0, 2.0], [3.0, 4.0]])
    value = losses.logit_suppression(logits, np.array([0, 0]), np.array([3, 1]))
    np.testing.assert_allclose(value, 0.25 * np.log((np.exp(2) + np.exp(4)) / 2), rtol=1e-6)


def test_order_of_classes_does_not_matter(problem):
    p = problem()
    order = np.array([3, 0, 4, 1, 2])
    value = losses.fedvls(p["logits"], p["teacher"], p["labels"], p["counts"])
    labels = np.argsort(order)[p["labels"]]
    moved = losses.fedvls(p["logits"][:, order], p["teacher"][:, order], labels, p["counts"][order])
    np.testing.assert_allclose(moved, value, rtol=1e-5)
