"""Curves of runs: over rounds, against megabytes, seeds joined."""

import json

import numpy as np
import pytest

from fedjax_skew.report import training_curves
from fedjax_skew.runs import store

pytest.importorskip("matplotlib")


def run(path, values, megabytes=None):
    """A run directory with accuracies ``[T][S]``, and megabytes ``[T][S]`` in each direction."""
    path.mkdir()
    with open(path / "metrics.jsonl", "w") as f:
        for place, accuracy in enumerate(values):
            line = {"round": 5 * (place + 1), "accuracy": accuracy}
            if megabytes:
                sent = [round(1e6 * m) for m in megabytes[place]]
                line |= {"bytes_down": sent, "bytes_up": sent}
            f.write(json.dumps(line) + "\n")
    return store.read(path)


def test_curves_are_in_percent_and_against_the_mean_of_megabytes(tmp_path):
    record = run(tmp_path / "a", [[0.5, 0.25], [0.75, 0.5]], [[1, 2], [3, 4]])
    x, values = training_curves.series({"a": [record]})["a"]
    assert x.tolist() == [5, 10] and np.issubdtype(x.dtype, np.integer)
    np.testing.assert_allclose(values, [[50, 75], [25, 50]])
    x, values = training_curves.series({"a": [record]}, "megabytes")["a"]
    np.testing.assert_allclose(x, [3, 7])  # both directions, mean over seeds
    assert record.megabytes == (6.0, 8.0)


def test_seeds_in_runs_of_their_own_make_one_curve(tmp_path):
    first = run(tmp_path / "a", [[0.5], [0.7], [0.9]], [[1], [2], [3]])
    second = run(tmp_path / "b", [[0.3], [0.5]], [[2], [4]])  # still running
    x, values = training_curves.series({"a": [first, second]}, "megabytes")["a"]
    np.testing.assert_allclose(x, [3, 6])
    np.testing.assert_allclose(values, [[50, 70], [30, 50]])


def test_runs_without_bytes_are_drawn_over_rounds_only(tmp_path):
    old = run(tmp_path / "old", [[0.5], [0.7]])
    assert old.megabytes == ()
    (axis,) = training_curves.draw({"old": [old]}).axes
    assert axis.get_xlabel() == "round"
    new = run(tmp_path / "new", [[0.5], [0.7]], [[1], [2]])
    rounds, megabytes = training_curves.draw({"old": [old], "new": [new]}, "MNIST").axes
    assert (rounds.get_title(), megabytes.get_title()) == (
        "MNIST over rounds",
        "MNIST against megabytes",
    )
    assert len(rounds.lines) == 2 and [line.get_label() for line in megabytes.lines] == ["new"]
    assert training_curves.draw({"nothing": [store.read(tmp_path)]}) is None
