"""Drift of stacked updates against plain numpy, and the streaming form against the stacked one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.metrics import drift


@pytest.fixture
def updates():
    rng = np.random.default_rng(0)
    return {
        "kernel": jnp.asarray(rng.normal(size=(6, 4, 3)), jnp.float32),
        "bias": jnp.asarray(rng.normal(size=(6, 3)), jnp.float32),
    }


def flat(updates):
    return np.concatenate([np.asarray(u, np.float64).reshape(6, -1) for u in updates.values()], 1)


def test_norms_and_cosines_match_numpy(updates):
    vectors, weights = flat(updates), np.array([1.0, 2, 3, 4, 5, 0])
    mean = weights @ vectors / weights.sum()
    norms = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(drift.update_norms(updates), norms, rtol=1e-5)
    np.testing.assert_allclose(
        jax.jit(drift.cosine_to_mean)(updates, weights),
        vectors @ mean / (norms * np.linalg.norm(mean)),
        rtol=1e-4,
    )


def test_streaming_sums_of_chunks_give_the_stacked_averages(updates):
    weights = np.array([3.0, 1, 4, 1, 5, 0])
    chunks = [
        drift.drift_sums(jax.tree.map(lambda u, i=i: u[i : i + 2], updates), weights[i : i + 2])
        for i in (0, 2, 4)
    ]
    statistics = drift.drift_statistics(functools.reduce(drift.merge, chunks))
    share = weights / weights.sum()
    vectors = flat(updates)
    norms, mean = np.linalg.norm(vectors, axis=1), share @ vectors
    np.testing.assert_allclose(statistics["update_norm"], share @ norms, rtol=1e-5)
    np.testing.assert_allclose(statistics["mean_update_norm"], np.linalg.norm(mean), rtol=1e-5)
    np.testing.assert_allclose(
        statistics["cosine_to_mean"], share @ drift.cosine_to_mean(updates, weights), rtol=1e-5
    )
    np.testing.assert_allclose(statistics["diversity"], share @ norms**2 / (mean @ mean), rtol=1e-4)


def test_equal_updates_point_the_same_way():
    same = {"w": jnp.ones((3, 5))}
    statistics = drift.drift_statistics(drift.drift_sums(same, jnp.array([1.0, 2.0, 3.0])))
    np.testing.assert_allclose(statistics["cosine_to_mean"], 1, rtol=1e-6)
    np.testing.assert_allclose(statistics["diversity"], 1, rtol=1e-6)


def test_zero_updates_give_finite_numbers():
    still = {"w": jnp.zeros((2, 3))}
    assert np.isfinite(np.asarray(drift.cosine_to_mean(still))).all()
    statistics = drift.drift_statistics(drift.drift_sums(still, jnp.zeros(2)))
    assert all(np.isfinite(value) for value in statistics.values())


def test_bfloat16_updates_are_summed_in_float32():
    wide = {"w": jnp.full((2, 4096), 1e-2, jnp.bfloat16)}
    value = float(jnp.bfloat16(1e-2))
    np.testing.assert_allclose(drift.update_norms(wide), 64 * value, rtol=1e-5)
