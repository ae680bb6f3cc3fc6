"""Whole parts of a total, and the repair of short clients."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_skew.data import apportion


@settings(max_examples=100, deadline=None)
@given(
    weights=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50),
    at_least=st.integers(0, 3),
    extra=st.integers(0, 10_000),
)
def test_parts_sum_up_and_follow_the_weights(weights, at_least, extra):
    weights = np.array(weights)
    total = at_least * len(weights) + extra
    parts = apportion.apportion(total, weights, at_least)
    assert parts.sum() == total
    assert parts.min() >= at_least
    assert (np.diff(parts[np.argsort(weights, kind="stable")]) >= -1).all()
    np.testing.assert_allclose(parts - at_least, weights / weights.sum() * extra, atol=1.001)


def test_a_larger_weight_never_gets_less():
    weights = np.arange(1, 40) ** -1.3
    for total in (39, 100, 1001):
        assert (np.diff(apportion.apportion(total, weights, 1)) <= 0).all()


@settings(max_examples=100, deadline=None)
@given(
    num_samples=st.integers(1, 300),
    num_clients=st.integers(1, 20),
    minimum=st.integers(1, 10),
    seed=st.integers(0, 1000),
)
def test_repair_reaches_the_minimum_and_moves_no_more_than_needed(
    num_samples, num_clients, minimum, seed
):
    minimum = min(minimum, num_samples // num_clients)
    if minimum < 1:
        return
    rng = np.random.default_rng(seed)
    clients = (num_clients * rng.power(0.3, num_samples)).astype(np.int32)
    labels = rng.integers(0, 5, num_samples)
    before = np.bincount(clients, minlength=num_clients)
    repaired, moved = apportion.fill_short_clients(clients, labels, num_clients, minimum, rng)
    after = np.bincount(repaired, minlength=num_clients)
    assert after.min() >= minimum
    assert after.sum() == num_samples
    assert moved == np.maximum(minimum - before, 0).sum() == (clients != repaired).sum()
    np.testing.assert_array_equal(after[before < minimum], minimum)
