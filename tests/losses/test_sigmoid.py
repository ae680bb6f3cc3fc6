"""The weighted binary cross-entropy against a plain formula."""

import jax
import numpy as np

from fedjax_skew import losses


def weighted(logits, labels, positive, negative):
    q = 1 / (1 + np.exp(-logits))
    result = []
    for row, y in zip(q, labels, strict=True):
        each = [
            -positive[c] * np.log(v) if c == y else -negative[c] * np.log(1 - v)
            for c, v in enumerate(row)
        ]
        result.append(sum(each))
    return np.array(result)


def test_equals_its_formula(agrees, problem):
    p = problem()
    args = p["logits"], p["labels"], np.abs(p["a"]), np.abs(p["b"])
    agrees(losses.weighted_binary_cross_entropy, weighted, *args)


def test_gradient_is_the_plain_one_times_the_weight(problem):
    p = problem()
    positive, negative = np.linspace(0.1, 9, 5), np.linspace(3, 0.2, 5)
    loss = losses.weighted_binary_cross_entropy
    found = jax.grad(lambda x: loss(x, p["labels"], positive, negative).sum())(p["logits"])
    true = np.eye(5)[p["labels"]]
    plain = 1 / (1 + np.exp(-p["logits"])) - true
    expected = plain * np.where(true > 0, positive, negative)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_label_out_of_range_is_padding(problem):
    p = problem()
    ones = np.ones(5)
    value = losses.weighted_binary_cross_entropy(p["logits"], np.full(6, -1), ones, ones)
    np.testing.assert_array_equal(value, 0)
