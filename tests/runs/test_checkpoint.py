"""What is kept of a run's checkpoints."""

import numpy as np
import pytest

from fedjax_skew.runs import checkpoint, rundir
from fedjax_skew.runs.recorder import DirectoryRecorder
from fedjax_skew.runs.train import train_and_evaluate
from fedjax_skew.simulation.problem import build
from fedjax_skew.simulation.state import initial_state
from fedjax_skew.simulation.trainer import Point

STATE = {"params": {"w": np.arange(3.0)}, "stats": {}}


def names(directory):
    return sorted(p.name for p in directory.iterdir())


def test_the_newest_are_kept_and_remains_of_killed_processes_deleted(tmp_path):
    for round_ in (1, 2, 3):
        checkpoint.save(tmp_path, round_, STATE, keep=3)
    (tmp_path / "4").mkdir()  # A directory without a seal is no checkpoint.
    (tmp_path / "5.orbax-checkpoint-tmp").mkdir()
    checkpoint.tidy(tmp_path, 3, keep=2)
    assert names(tmp_path) == ["2", "2.json", "3", "3.json"]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_later_checkpoint_does_not_displace_a_complete_one(tmp_path, keep):
    for round_ in (2, 6):
        checkpoint.save(tmp_path, round_, STATE, keep=2)
    for path in (tmp_path / "6").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    assert checkpoint.newest(tmp_path) == 2
    checkpoint.save(tmp_path, 4, STATE, keep=keep)
    assert checkpoint.newest(tmp_path) == 4
    assert checkpoint.rounds(tmp_path) == [6, 4, 2][: keep + 1]
    checkpoint.save(tmp_path, 6, STATE, keep=keep)
    assert checkpoint.newest(tmp_path) == 6
    assert checkpoint.rounds(tmp_path) == [6, 4][:keep]


def test_resuming_deletes_what_a_killed_process_left(tiny_config, blobs, tmp_path):
    train_and_evaluate(tiny_config(), tmp_path, dataset=blobs)
    remains = tmp_path / rundir.CHECKPOINTS / "99"
    remains.mkdir()
    (tmp_path / rundir.SUMMARY).unlink()
    train_and_evaluate(tiny_config(), tmp_path, dataset=blobs)
    assert (tmp_path / rundir.SUMMARY).exists() and not remains.exists()


def test_columns_of_an_evaluated_round_are_not_counted_again(tiny_config, blobs, tmp_path):
    problem = build(tiny_config(), dataset=blobs)
    state = initial_state(problem)
    recorder = DirectoryRecorder(tmp_path, every=1, keep=1)
    # A signal abandoned the evaluation of round 2, so the checkpoint holds its columns.
    recorder.save(Point(state, 2, {"samples": 5}, 1.0, None), None)
    rundir.append_line(tmp_path, {"round": 1})
    point, _ = recorder.restore(problem, state)
    assert (point.round, point.pending) == (2, {"samples": 5})
    # The resumed run evaluated round 2, and was killed before its next checkpoint.
    rundir.append_line(tmp_path, {"round": 2, "samples": 5})
    point, history = recorder.restore(problem, state)
    assert (point.round, point.pending) == (2, {})
    assert [line["round"] for line in history] == [1, 2]
