"""Distillation losses against plain formulas and the masks of the published codes."""

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


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def kl(q, p):
    held = q > 0
    return np.sum(q[held] * np.log(q[held] / p[held]))


def plain(logits, teacher, temperature=1.0):
    pairs = zip(logits, teacher, strict=True)
    return np.array([kl(softmax(g / temperature), softmax(f / temperature)) for f, g in pairs])


def not_true(logits, labels, teacher, temperature=1.0):
    result = []
    for f, g, y in zip(logits, teacher, labels, strict=True):
        q = softmax(np.delete(g, y) / temperature)
        p = softmax(np.delete(f, y) / temperature)
        result.append(temperature**2 * kl(q, p))
    return np.array(result)


def masking(logits, labels, teacher, counts, temperature=1.0):
    # Masks are subtracted as 1000, after the temperature; samples without a target give 0.
    majority = counts > counts.mean()
    result = []
    for row, (f, y) in enumerate(zip(logits, labels, strict=True)):
        true = np.arange(len(counts)) == y
        hidden = true | majority
        if hidden.all():
            result.append(0.0)
            continue
        if teacher is None:
            q = np.where(hidden, 0, 1 / np.sum(~hidden))
        else:
            q = softmax(teacher[row] / temperature - 1000.0 * majority - 1000.0 * true)
        result.append(temperature**2 * kl(q, softmax(f / temperature - 1000.0 * true)))
    return np.array(result)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(counts=skewed, seed=st.integers(0, 99))
def test_equal_their_formulas(agrees, problem, counts, seed):
    p = problem(counts=counts, size=6 if len(counts) > 2 else 1, seed=seed, scale=3.0)
    logits, teacher, labels, counts = p["logits"], p["teacher"], p["labels"], p["counts"]
    agrees(losses.distillation, plain, logits, teacher, temperature=2.0)
    agrees(losses.not_true_distillation, not_true, logits, labels, teacher, temperature=3.0)
    args = logits, labels, teacher, counts
    agrees(losses.label_masking_distillation, masking, *args, temperature=2.0)
    agrees(losses.label_masking_distillation, masking, logits, labels, None, counts)


@pytest.mark.parametrize("count", [1, 7, 10**6 + 1])
def test_label_masking_with_equal_counts_is_not_true_distillation(problem, count):
    p = problem(counts=(count,) * 5)
    args = p["logits"], p["labels"], p["teacher"]
    value = losses.label_masking_distillation(*args, p["counts"], temperature=2.0)
    np.testing.assert_array_equal(value, losses.not_true_distillation(*args, temperature=2.0))


def test_no_minority_class_left_gives_zero(problem):
    p = problem(counts=(9, 9, 9, 9, 1))
    args = p["logits"], np.full(6, 4), p["teacher"], p["counts"]
    np.testing.assert_array_equal(losses.label_masking_distillation(*args), 0)
    np.testing.assert_array_equal(losses.label_masking_distillation(*args[:2], None, args[3]), 0)


def test_a_count_equal_to_the_mean_is_minority():
    # Counts 1, 2, 3 have the mean 2: class 1 stays a target beside class 0.
    logits, teacher = np.array([0.0, 1.0, 2.0]), np.array([0.0, 50.0, 0.0])
    value = losses.label_masking_distillation(logits, 2, teacher, np.array([1, 2, 3]))
    np.testing.assert_allclose(value, np.log1p(np.exp(-1.0)), rtol=1e-5)


def test_two_classes_leave_nothing_to_distil(problem):
    p = problem(counts=(3, 3))
    value = losses.not_true_distillation(p["logits"], p["labels"], p["teacher"])
    np.testing.assert_array_equal(value, 0)


def test_true_class_receives_no_gradient(problem):
    p = problem()
    for loss in (
        lambda x: losses.not_true_distillation(x, p["labels"], p["teacher"]),
        lambda x: losses.label_masking_distillation(x, p["labels"], p["teacher"], p["counts"]),
    ):
        gradient = np.asarray(jax.grad(lambda x, loss=loss: loss(x).sum())(p["logits"]))
        np.testing.assert_array_equal(gradient[np.arange(6), p["labels"]], 0)


def test_teacher_receives_no_gradient_and_equal_teacher_gives_zero(problem):
    p = problem()
    gradient = jax.grad(lambda t: losses.distillation(p["logits"], t).sum())(p["teacher"])
    np.testing.assert_array_equal(gradient, 0)
    np.testing.assert_array_equal(losses.distillation(p["logits"], p["logits"]), 0)


def test_shift_of_student_or_teacher_changes_nothing(problem):
    p = problem()
    value = losses.not_true_distillation(p["logits"], p["labels"], p["teacher"])
    moved = losses.not_true_distillation(p["logits"] + 7, p["labels"], p["teacher"] - 5)
    np.testing.assert_allclose(moved, value, rtol=1e-4, atol=1e-5)
