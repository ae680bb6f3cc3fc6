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


def suppression(logits, labels, counts, where=None, form="code"):
    keep = np.ones(len(labels), bool) if where is None else where
    f, y, share = logits[keep], labels[keep], counts / counts.sum()
    num_classes = len(counts)
    total = 0.0
    for c in range(num_classes):
        if form == "code":
            moved = f[:, c] - np.log(share[c] + 1e-9) + np.log(1 / num_classes + 1e-9)
            spread = moved * (y != c)
            total += share[c] * (np.log(np.sum(np.exp(spread))) - np.log(len(y)))
        elif (y != c).any():
            total += share[c] * np.log(np.mean((y != c) * np.exp(f[:, c])))
    return total


@settings(max_examples=15, deadline=None, derandomize=True)
@given(counts=skewed, seed=st.integers(0, 99))
def test_terms_equal_their_formulas(agrees, problem, counts, seed):
    p = problem(counts=counts, size=6 if len(counts) > 2 else 1, seed=seed, scale=3.0)
    logits, teacher, labels, counts = p["logits"], p["teacher"], p["labels"], p["counts"]
    agrees(losses.vacant_class_distillation, distillation, logits, teacher, counts)
    agrees(losses.logit_suppression, suppression, logits, labels, counts)
    agrees(losses.logit_suppression, suppression, logits, labels, counts, form="paper")
    if len(labels) > 1:
        agrees(losses.logit_suppression, suppression, logits, labels, counts, where=p["where"])


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


def test_printed_suppression_falls_with_all_logits_and_that_of_the_code_is_bounded(problem):
    p = problem()
    lowered = p["logits"] - 900, p["labels"], p["counts"]
    value = losses.logit_suppression(p["logits"], *lowered[1:], form="paper")
    moved = losses.logit_suppression(*lowered, form="paper")
    np.testing.assert_allclose(moved, value - 900, rtol=1e-5)
    assert losses.logit_suppression(*lowered) > -10


def test_suppression_skips_a_class_that_every_row_carries():
    logits = np.array([[1.0, 2.0], [3.0, 4.0]])
    value = losses.logit_suppression(logits, np.array([0, 0]), np.array([3, 1]), form="paper")
    np.testing.assert_allclose(value, 0.25 * np.log((np.exp(2) + np.exp(4)) / 2), rtol=1e-6)


def test_order_of_classes_does_not_matter(problem):
    p = problem()
    order = np.array([3, 0, 4, 1, 2])
    logits, teacher, counts = p["logits"], p["teacher"], p["counts"]
    value = losses.vacant_class_distillation(logits, teacher, counts)
    moved = losses.vacant_class_distillation(logits[:, order], teacher[:, order], counts[order])
    np.testing.assert_allclose(moved, value, rtol=1e-5, atol=1e-7)
    value = losses.logit_suppression(logits, p["labels"], counts)
    labels = np.argsort(order)[p["labels"]]
    moved = losses.logit_suppression(logits[:, order], labels, counts[order])
    np.testing.assert_allclose(moved, value, rtol=1e-5)
