"""FedLC-LT, server's part: every equation against a plain loop."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def query(logits, scale, bias):
    return np.array(
        [[a * f + b for f, a, b in zip(row, scale, bias, strict=True)] for row in logits]
    )


def ensemble(client_logits, weights, r, norms, lam=1e-3):
    size, rows, num_classes = client_logits.shape
    result = np.zeros((rows, num_classes))
    for b in range(rows):
        scores = [
            1 / (1 + np.exp(-client_logits[k, b] @ r[k])) + lam * norms[k] ** 2 for k in range(size)
        ]
        for k, share in enumerate(softmax(np.array(scores))):
            result[b] += weights[k] * share * client_logits[k, b]
    return result


def distillation(student, teacher):
    result = []
    for f, g in zip(student, teacher, strict=True):
        p, q = softmax(f / np.sqrt(np.sum(f**2))), softmax(g / np.sqrt(np.sum(g**2)))
        result.append(np.sum(q * np.log(q / p)))
    return np.array(result)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), size=st.sampled_from([1, 6]))
def test_equal_their_formulas(agrees, problem, seed, size):
    p = problem(seed=seed, size=size)
    agrees(losses.class_query, query, p["logits"], p["a"], p["a"][::-1].copy())
    args = p["client_logits"], p["weights"], p["r"], p["norms"]
    agrees(losses.ensemble_logits, ensemble, *args, lam=0.3)
    agrees(losses.normalized_distillation, distillation, p["logits"], p["teacher"])


def test_identical_clients_are_averaged(problem):
    p = problem()
    same = np.repeat(p["client_logits"][:1], 4, axis=0)
    value = losses.ensemble_logits(same, p["weights"], np.zeros((4, 5)), np.ones(4))
    np.testing.assert_allclose(value, same[0] / 4, rtol=1e-5)


def test_distillation_ignores_the_length_of_both_vectors(problem):
    p = problem()
    value = losses.normalized_distillation(p["logits"], p["teacher"])
    moved = losses.normalized_distillation(3 * p["logits"], 0.1 * p["teacher"])
    np.testing.assert_allclose(moved, value, rtol=1e-4, atol=1e-6)
    same = losses.normalized_distillation(p["logits"], 2 * p["logits"])
    np.testing.assert_allclose(same, 0, atol=1e-6)


def test_learnable_parts_of_the_ensemble_receive_a_gradient(problem):
    p = problem()

    def loss(r):
        teacher = losses.ensemble_logits(p["client_logits"], p["weights"], r, p["norms"])
        return losses.normalized_distillation(p["logits"], teacher).sum()

    assert np.abs(jax.grad(loss)(p["r"])).max() > 0
