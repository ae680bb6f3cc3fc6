"""Skew statistics against hand-computed numbers, scipy and obvious extremes."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import distance

from fedjax_skew.metrics import skew


def test_roles_follow_the_mean_of_the_present_classes():
    majority, minority, vacant = skew.class_roles(np.array([0, 90, 10, 20, 0]))
    np.testing.assert_array_equal(majority, [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(minority, [0, 0, 1, 1, 0])
    np.testing.assert_array_equal(vacant, [1, 0, 0, 0, 1])


def test_balanced_client_has_no_minority_and_empty_client_only_vacant_classes():
    roles = skew.class_roles(np.array([[7, 7, 0], [0, 0, 0]]))
    assert roles.shape == (2, 3, 3)
    np.testing.assert_array_equal(roles[0], [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(roles[1], [[0, 0, 0], [0, 0, 0], [1, 1, 1]])


def test_roles_are_the_same_when_traced_and_cover_every_class_once():
    counts = np.random.default_rng(0).integers(0, 4, (20, 8))
    eager = skew.class_roles(counts)
    np.testing.assert_array_equal(eager, jax.jit(skew.class_roles)(jnp.asarray(counts)))
    assert (eager.sum(1) == 1).all()


def test_identical_clients_have_no_skew():
    statistics = skew.skew_statistics(np.tile([10, 20, 30], (4, 1)))
    assert statistics["total_variation"] == pytest.approx(0)
    assert statistics["jensen_shannon"] == pytest.approx(0, abs=1e-12)
    assert statistics["gini_sizes"] == pytest.approx(0)
    assert statistics["vacant_fraction"] == 0
    assert statistics["imbalance_factor"] == pytest.approx(3)


def test_one_class_per_client_has_known_distances():
    counts = 5 * np.eye(4, dtype=int)
    np.testing.assert_allclose(skew.total_variation(counts), 0.75)
    expected = distance.jensenshannon([1, 0, 0, 0], [0.25] * 4, base=2) ** 2
    np.testing.assert_allclose(skew.jensen_shannon(counts), expected)


def test_distances_do_not_depend_on_block_size(monkeypatch):
    counts = np.random.default_rng(0).integers(0, 9, (50, 6))
    whole = skew.jensen_shannon(counts), skew.total_variation(counts)
    monkeypatch.setattr(skew, "_BLOCK", 7)
    np.testing.assert_array_equal(
        whole, (skew.jensen_shannon(counts), skew.total_variation(counts))
    )


def test_jensen_shannon_agrees_with_scipy_on_random_counts():
    counts = np.random.default_rng(3).integers(0, 5, (30, 7)) + np.eye(30, 7, dtype=int)
    counts[:, 0] += 1
    overall = counts.sum(0)
    expected = [distance.jensenshannon(row, overall, base=2) ** 2 for row in counts]
    np.testing.assert_allclose(skew.jensen_shannon(counts), expected, rtol=1e-9)


def test_gini_matches_its_definition_by_pairs():
    sizes = np.random.default_rng(0).pareto(1.0, 40)
    pairs = np.abs(sizes[:, None] - sizes[None, :]).mean()
    assert skew.gini(sizes) == pytest.approx(pairs / (2 * sizes.mean()))
    assert skew.gini([0, 0, 0, 12]) == pytest.approx(0.75)


def test_statistics_are_json_numbers_even_with_empty_clients_and_classes():
    statistics = skew.skew_statistics(np.array([[3, 0, 0], [0, 0, 0], [1, 8, 0]], np.int32))
    assert json.loads(json.dumps(statistics, allow_nan=False)) == statistics
    assert statistics["empty_clients"] == 1
    assert statistics["samples_per_client_median"] == 3
    assert statistics["classes_per_client_max"] == 2
    assert statistics["vacant_fraction"] == pytest.approx(0.5)
    assert statistics["imbalance_factor"] == pytest.approx(2)
    json.dumps(skew.skew_statistics(np.zeros((2, 2), int)), allow_nan=False)


def test_wrong_shape_is_a_clear_error():
    with pytest.raises(ValueError, match="clients x classes"):
        skew.skew_statistics(np.arange(3))
