"""Cells run one after another or in processes, and leave one store behind."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from experiments import cells, executor, processes, selection
from fedjax_skew.runs import rundir
from fedjax_skew.runs.train import Interrupted

ROOT = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture
def make(tmp_path, tiny_config, blobs):
    """A cell of the tiny problem."""
    path = tmp_path / "blobs.npz"
    np.savez(
        path,
        x_train=blobs.x_train,
        y_train=blobs.y_train,
        x_test=blobs.x_test,
        y_test=blobs.y_test,
    )

    def cell(**changes):
        fields = {"dataset__name": "npz", "dataset__path": str(path), "rounds": 2, **changes}
        config = tiny_config(**fields)
        run = selection.Run(config, ())
        return cells.Cell(run, config, tmp_path / "cells" / run.name)

    return cell


def progress(chosen):
    return executor.Progress(chosen, {cell.run.name: 1.0 for cell in chosen}, shown=False)


def test_a_failed_cell_does_not_stop_the_others_and_nothing_runs_twice(make, monkeypatch):
    missing, good = make(dataset__path="/nowhere.npz"), make()
    executor.run_here([missing, good], progress([missing, good]))
    assert (missing.record().status, good.record().status) == ("failed", "finished")
    assert "/nowhere.npz" in missing.record().failure
    ran = []

    def train(config, directory, progress):
        ran.append(directory)

    monkeypatch.setattr(executor, "train_and_evaluate", train)
    executor.run_here([missing, good], progress([missing, good]))
    assert ran == [missing.directory]
    assert missing.record().failure == ""


def test_a_cell_that_another_process_holds_is_left_alone(make, monkeypatch):
    cell = make()
    monkeypatch.setattr(rundir, "is_owned", lambda path: True)
    assert executor.pending([cell]) == []


@pytest.mark.parametrize("error", [Interrupted("x"), KeyboardInterrupt(), OSError(28, "full")])
def test_what_concerns_all_cells_is_not_a_failed_cell(make, monkeypatch, error):
    def train(*args, **kwargs):
        raise error

    monkeypatch.setattr(executor, "train_and_evaluate", train)
    with pytest.raises(type(error)):
        executor.run_here([make()], progress([make()]))
    assert make().record().failure == ""


def test_an_unexpected_error_is_one_line(make, monkeypatch):
    def train(*args, **kwargs):
        raise ZeroDivisionError("by\n zero")

    monkeypatch.setattr(executor, "train_and_evaluate", train)
    assert executor.run_cell(make().config, make().directory, progress=False) == (
        "ZeroDivisionError: by zero"
    )


def test_a_configuration_survives_json(make):
    config = make(hparams={"fedprox": {"mu": 0.5}}, method="fedprox").config
    config.group_thresholds = (7, 3)
    again = executor.config_from(json.loads(json.dumps(config.to_dict())))
    assert again.to_dict() == config.to_dict()
    assert selection.fingerprint(again) == selection.fingerprint(config)


def test_the_bar_moves_with_the_rounds_of_running_cells(make, capsys):
    first, second = make(rounds=4), make(rounds=10, method="fedprox")
    weights = {first.run.name: 1.0, second.run.name: 3.0}
    bar = executor.Progress([first, second], weights)

    def advance(cell, rounds):
        cell.directory.mkdir(parents=True, exist_ok=True)
        lines = "".join(f'{{"round": {r}, "seconds": 1}}\n' for r in range(1, rounds + 1))
        (cell.directory / "metrics.jsonl").write_text(lines)

    advance(second, 4)  # Rounds of an earlier command took none of this one's time.
    bar.running([first, second])
    assert bar._bar.n == 0.0
    advance(first, 1)
    advance(second, 6)
    bar.running([first, second])
    assert bar._bar.n == pytest.approx(0.25 + 3 * 2 / 6)
    capsys.readouterr()
    for _ in range(3):
        time.sleep(0.15)  # tqdm prints at most ten times a second.
        bar.running([first, second])
    assert capsys.readouterr().err == ""  # Nothing is news.
    bar.done(second, "")
    bar.running([first])
    assert bar._bar.n == pytest.approx(3.25)
    bar.close()
    assert "fedavg 1/4" in capsys.readouterr().err


def test_signals_become_interrupted():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="SIGTERM"), executor.stop_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("items", "groups", "shares"),
    [
        ([0, 1, 2, 3], 2, [[0, 2], [1, 3]]),
        ([0, 1], 2, [[0], [1]]),
        ([0], 3, [[0], [0], [0]]),
        ([0, 1, 2], 2, [[0, 2], [1]]),
    ],
)
def test_devices_are_dealt_evenly(items, groups, shares):
    assert processes._deal(items, groups) == shares


def test_gpus_become_visible_devices(monkeypatch):
    done = dataclasses.make_dataclass("Done", ["returncode", "stdout", "stderr"])
    monkeypatch.setattr(processes.subprocess, "run", lambda *a, **k: done(0, "gpu 4\n", ""))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in processes.slots(0)]
    assert seen == ["0", "1", "2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    seen = [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in processes.slots(1)]
    assert seen == ["5,7"]


def test_every_core_gets_a_process_unless_the_number_is_given(monkeypatch):
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: {4, 5, 6, 7}, raising=False)
    assert [slot.cores for slot in processes.slots(0)] == [(4,), (5,), (6,), (7,)]
    assert [slot.cores for slot in processes.slots(2)] == [(4, 6), (5, 7)]


def test_processes_leave_the_same_store(make, monkeypatch):
    monkeypatch.setattr(processes, "slots", lambda jobs: [processes.Slot({})] * 2)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    missing, good = make(dataset__path="/nowhere.npz"), make()
    processes.run_processes([missing, good], progress([missing, good]))
    assert (missing.record().status, good.record().status) == ("failed", "finished")
    assert "/nowhere.npz" in missing.record().failure


def test_a_process_that_is_killed_is_a_failed_cell(make):
    cell = make()
    cell.directory.mkdir(parents=True)
    assert "ended with signal SIGKILL" in processes._outcome(cell, -9)
    assert cell.record().status == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "runs"])
def test_an_interrupted_table_goes_on(tmp_path, mode):
    command = [sys.executable, "-m", "experiments.reproduce", "--table=fedlc/table4"]
    command += ["--only=method=fedavg,fedprox,partition=synthetic(1,1)", f"--workdir={tmp_path}"]
    command += ["--seeds=1", "--rounds=100", f"--parallel={mode}", "--jobs=2"]
    one_device = {**os.environ, "XLA_FLAGS": ""}
    first = subprocess.Popen(command, cwd=ROOT, env=one_device, stderr=subprocess.PIPE, text=True)
    while first.poll() is None and not list(tmp_path.glob("cells/*/metrics.jsonl")):
        time.sleep(0.2)
    first.send_signal(signal.SIGTERM)
    assert "resumes from there" in first.communicate()[1]
    assert first.returncode == 130
    assert "| FedProx | -- (63.09) |" in (tmp_path / "fedlc_table4_rounds=100.md").read_text()
    done = subprocess.run(command, cwd=ROOT, env=one_device, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in tmp_path.glob("cells/*/metrics.jsonl"):
        rounds = [json.loads(line)["round"] for line in path.read_text().splitlines()]
        assert rounds == list(range(10, 101, 10))
