"""FedLC-LT, clients' part: every equation against a plain loop."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew import losses


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def wasserstein(mean, var, present, normalize=True):
    size = len(mean)
    result = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            shared = np.flatnonzero(present[i] & present[j])
            for c in shared:
                apart = np.sum((mean[i, c] - mean[j, c]) ** 2)
                apart += np.sum((np.sqrt(var[i, c]) - np.sqrt(var[j, c])) ** 2)
                result[i, j] += np.sqrt(apart)
            if normalize:
                result[i, j] = result[i, j] / len(shared) if len(shared) else np.inf
    return result


def synthetic(mean_logits, distances, num_neighbors):
    result = []
    for k, row in enumerate(distances):
        others = [m for m in np.argsort(row, kind="stable") if m != k and np.isfinite(row[m])]
        near = mean_logits[others[:num_neighbors]]
        if not len(near):
            result.append(np.zeros(mean_logits.shape[1:]))
            continue
        result.append(near.sum(axis=0) / np.sqrt((near**2).sum(axis=0) + 1e-12) / len(near))
    return np.array(result)


def calibration(logits, labels, target, temperature=4.0, where=None):
    keep = np.ones(len(labels), bool) if where is None else where
    terms = []
    for c in np.unique(labels[keep]):
        p = softmax(logits[keep & (labels == c)].mean(axis=0) / temperature)
        q = softmax(target[c] / temperature)
        terms.append(np.sum(q * np.log(q / p)))
    return np.mean(terms)


def importance(local, target, present, temperature=4.0):
    weights = np.ones(len(present))
    for c in range(len(present)):
        ratio = softmax(target[c] / temperature)[c] / softmax(local[c] / temperature)[c]
        weights[c] = np.clip(ratio, 0.1, 10)
    weights[~present] = 1
    weights[present] /= weights[present].mean()
    return weights


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999))
def test_equal_their_formulas(agrees, problem, seed):
    p = problem(seed=seed, scale=3.0)
    distances = np.abs(p["distances"]) + 0.01
    agrees(losses.logit_wasserstein, wasserstein, p["means"], p["vars"], p["held"])
    agrees(losses.logit_wasserstein, wasserstein, p["means"], p["vars"], p["held"], normalize=False)
    agrees(losses.synthetic_logits, synthetic, p["means"], distances, num_neighbors=2)
    args = p["logits"], p["labels"], p["synthetic"]
    agrees(losses.local_logit_calibration, calibration, *args)
    agrees(losses.local_logit_calibration, calibration, *args, where=p["where"], temperature=1.5)
    local = p["means"][0]
    agrees(losses.class_importance_weights, importance, local, p["synthetic"], p["present"])


def test_distances_are_symmetric_and_zero_to_oneself(problem):
    p = problem()
    p["held"][:, 0] = True
    value = np.asarray(losses.logit_wasserstein(p["means"], p["vars"], p["held"]))
    np.testing.assert_allclose(value, value.T, rtol=1e-6)
    np.testing.assert_array_equal(np.diag(value), 0)


def test_clients_without_a_shared_class_are_infinitely_far_apart(problem):
    p = problem()
    value = np.asarray(losses.logit_wasserstein(p["means"], p["vars"], np.eye(4, 5)))
    assert np.isinf(value[~np.eye(4, dtype=bool)]).all()


def test_sharing_fewer_classes_is_not_nearer(problem):
    p = problem()
    means = np.zeros_like(p["means"])
    means[1] = 1.0
    held = np.ones((4, 5), bool)
    full = losses.logit_wasserstein(means, p["vars"] * 0, held)[0, 1]
    held[1, 1:] = False
    np.testing.assert_allclose(losses.logit_wasserstein(means, p["vars"] * 0, held)[0, 1], full)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 5, 5)])
def test_synthetic_logits_take_any_shape(agrees, problem, shape):
    values = np.random.default_rng(0).normal(size=shape)
    distances = problem()["distances"] + 0.01
    agrees(losses.synthetic_logits, synthetic, values, distances, num_neighbors=3)


def test_neighbours_at_infinite_distance_are_left_out(agrees, problem):
    p = problem()
    distances = np.abs(p["distances"])
    distances[0, 2:] = np.inf
    distances[1, :] = np.inf
    agrees(losses.synthetic_logits, synthetic, p["means"], distances, num_neighbors=2)


def test_own_logits_are_not_part_of_the_synthetic_ones(problem):
    p = problem()
    gradient = jax.jacobian(
        lambda x: losses.synthetic_logits(x, p["distances"], num_neighbors=3).sum(axis=(1, 2))
    )(p["means"])
    own = np.asarray(gradient)[np.arange(4), np.arange(4)]
    np.testing.assert_array_equal(own, 0)


def test_calibration_is_zero_when_the_batch_agrees(problem):
    p = problem()
    logits = p["synthetic"][p["labels"]]
    value = losses.local_logit_calibration(logits, p["labels"], p["synthetic"])
    np.testing.assert_allclose(value, 0, atol=1e-6)


def test_calibration_gives_no_gradient_to_the_synthetic_logits(problem):
    p = problem()
    gradient = jax.grad(lambda s: losses.local_logit_calibration(p["logits"], p["labels"], s))
    np.testing.assert_array_equal(gradient(p["synthetic"]), 0)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_weights_have_mean_one_over_present_classes_within_the_clip(problem, scale):
    p = problem(scale=scale)
    value = np.asarray(losses.class_importance_weights(p["means"][0], p["synthetic"], p["present"]))
    np.testing.assert_allclose(value[p["present"]].mean(), 1, rtol=1e-6)
    np.testing.assert_array_equal(value[~p["present"]], 1)
    assert value.max() / value[p["present"]].min() <= 100 * (1 + 1e-5)


def test_equal_logits_or_no_class_give_weights_of_one(problem):
    p = problem()
    local = p["synthetic"]
    same = losses.class_importance_weights(local, local, p["present"])
    np.testing.assert_array_equal(same, 1)
    none = losses.class_importance_weights(p["means"][0], local, np.zeros(5, bool))
    np.testing.assert_array_equal(none, 1)


def test_weights_carry_no_gradient(problem):
    p = problem()
    gradient = jax.grad(
        lambda x: losses.class_importance_weights(x, p["synthetic"], p["present"])[0]
    )
    np.testing.assert_array_equal(gradient(p["means"][0]), 0)
