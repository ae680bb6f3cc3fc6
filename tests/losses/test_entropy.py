"""The entropy of predictions, and how BalanceFL's objective is made of existing kernels."""

import jax
import numpy as np

from fedjax_skew import losses


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def entropy(logits, counts):
    held = np.flatnonzero(counts)
    result = []
    for f in logits:
        q = softmax(f[held])
        result.append(-np.sum(q * np.log(q)))
    return np.array(result)


def test_equals_its_formula(agrees, problem):
    for counts in ((5, 0, 9, 1, 0), (1, 1, 1, 1, 1), (0, 3, 0, 0, 0)):
        p = problem(counts=counts, scale=2.0)
        agrees(losses.prediction_entropy, entropy, p["logits"], p["counts"])


def test_bounds(problem):
    p = problem()
    flat = losses.prediction_entropy(np.zeros((1, 5)), p["counts"])
    np.testing.assert_allclose(flat, np.log(3), rtol=1e-6)
    certain = losses.prediction_entropy(1e4 * np.eye(5), np.ones(5))
    np.testing.assert_allclose(certain, 0, atol=1e-6)


def test_vacant_classes_have_no_gradient(problem):
    p = problem()
    loss = lambda x: losses.prediction_entropy(x, p["counts"]).sum()  # noqa: E731
    gradient = np.asarray(jax.grad(loss)(p["logits"]))
    np.testing.assert_array_equal(gradient[:, p["counts"] == 0], 0)


def test_balancefl_is_made_of_kernels(problem):
    """Its cross-entropy and distillation, with absent classes those absent from the batch."""
    p = problem(seed=4)
    counts = np.bincount(p["labels"], minlength=5)
    held, absent = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    for f, g, y in zip(p["logits"], p["teacher"], p["labels"], strict=True):
        found = losses.balanced_softmax(f, y, counts, tau=0.0)
        np.testing.assert_allclose(found, -np.log(softmax(f[held])[held == y][0]), rtol=1e-5)
        q, t = softmax(f[absent] / 2), softmax(g[absent] / 2)
        found = losses.vacant_class_distillation(f / 2, g / 2, counts)
        # The authors use cross-entropy, which differs by the teacher's entropy, a constant.
        expected = -np.sum(t * np.log(q)) + np.sum(t * np.log(t))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
