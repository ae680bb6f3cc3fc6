"""What a curve reports, over rounds and over seeds."""

import numpy as np
import pytest
from scipy import stats

from fedjax_skew.metrics import curves


def test_last_best_and_mean_of_last_rounds():
    rounds, values = np.arange(1, 101), np.arange(1, 101) / 100
    values[29] = 2.0
    summary = curves.summarize(rounds, values)
    assert summary["last"] == 1.0
    assert summary["best"] == 2.0
    assert summary["best_round"] == 30
    np.testing.assert_allclose(summary["mean_last_50"], np.mean(values[50:]))


def test_window_counts_rounds_and_not_evaluations():
    rounds = np.arange(0, 101, 10)
    # Rounds 51..100 hold the evaluations at 60, 70, 80, 90 and 100.
    np.testing.assert_allclose(curves.mean_last(rounds, rounds), 80)
    np.testing.assert_allclose(curves.mean_last([0, 100, 200], [1, 2, 3]), 3)
    np.testing.assert_allclose(curves.mean_last([1, 2], [1, 2], window=50), 1.5)


def test_seeds_are_a_batch_axis():
    values = np.array([[1.0, 3, 2], [6, 5, 4]])
    summary = curves.summarize([1, 2, 3], values, window=2)
    np.testing.assert_array_equal(summary["best"], [3, 6])
    np.testing.assert_array_equal(summary["best_round"], [2, 1])
    np.testing.assert_array_equal(summary["mean_last_2"], [2.5, 4.5])


def test_diverged_run_keeps_its_best_but_not_its_last():
    rounds, values = [1, 2, 3], [0.4, 0.6, np.nan]
    assert curves.best(rounds, values) == 0.6
    assert np.isnan(curves.last(rounds, values))
    assert np.isnan(curves.mean_last(rounds, values))
    assert np.isnan(curves.best(rounds, [np.nan] * 3))


def test_rounds_to_target_is_the_first_that_reaches_it():
    rounds, values = [10, 20, 30, 40], [0.1, 0.5, 0.4, 0.6]
    assert curves.rounds_to_target(rounds, values, 0.5) == 20
    assert curves.rounds_to_target(rounds, values, 0.55) == 40
    assert curves.rounds_to_target(rounds, values, 0.7) is None


def test_mean_and_sample_standard_deviation():
    assert curves.mean_std([1, 2, 3]) == (2.0, 1.0)
    assert curves.mean_std([1, 2, 3], ddof=0)[1] == pytest.approx(np.sqrt(2 / 3))
    assert curves.mean_std([5.0]) == (5.0, None)
    with pytest.raises(ValueError, match="empty"):
        curves.mean_std([])


def test_spearman_agrees_with_scipy_with_ties():
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.integers(0, 6, (2, 9))
        assert curves.spearman(first, second) == pytest.approx(
            stats.spearmanr(first, second).statistic
        )


def test_spearman_leaves_missing_pairs_out_and_knows_when_there_is_no_order():
    assert curves.spearman([1, 2, np.nan, 3], [10, 20, 0, 30]) == pytest.approx(1)
    assert curves.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert curves.spearman([1, 1, 1], [1, 2, 3]) is None
    assert curves.spearman([1.0], [1.0]) is None


def test_bad_curves_are_clear_errors():
    with pytest.raises(ValueError, match="T > 0"):
        curves.last([], [])
    with pytest.raises(ValueError, match="increase"):
        curves.last([2, 1], [0, 0])
    with pytest.raises(ValueError, match="window=0"):
        curves.mean_last([1], [1], window=0)
    with pytest.raises(ValueError, match="one curve"):
        curves.rounds_to_target([1], [[1.0]], 0.5)
