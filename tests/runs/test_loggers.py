"""Loggers see every evaluation once, also when a run is resumed."""

import contextlib
import csv
import sys
import types

import numpy as np
import pytest

from fedjax_skew.config import FIELDS, check
from fedjax_skew.errors import MissingExtra
from fedjax_skew.runs import loggers, rundir
from fedjax_skew.runs.train import train_and_evaluate


@pytest.fixture
def run(tiny_config, blobs, tmp_path):
    """``run("csv", rounds)`` trains in one directory."""

    def run(names, rounds):
        config = tiny_config(rounds=rounds, num_seeds=2, loggers=names)
        return train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)

    return run


class FakeWandb(types.ModuleType):
    def __init__(self):
        super().__init__("wandb")
        self.started, self.logged, self.finished = [], [], 0
        self.summary = {}

    def init(self, **settings):
        self.started.append(settings)
        return self

    def log(self, values, step):
        self.logged.append((step, values["accuracy"]))

    def finish(self):
        self.finished += 1


class FakeMlflow(types.ModuleType):
    def __init__(self):
        super().__init__("mlflow")
        self.runs, self.params, self.metrics, self.ended = [], {}, [], []

    @contextlib.contextmanager
    def _run(self, run_id):
        yield types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id))

    def start_run(self, run_id=None, run_name=None):
        self.runs.append(run_id or run_name)
        return self._run(run_id or "id of a new run")

    def log_params(self, params):
        self.params |= params

    def log_metrics(self, metrics, step=None):
        self.metrics.append((step, metrics))

    def end_run(self, status):
        self.ended.append(status)


def test_csv_holds_the_lines_averaged_over_seeds(run, tmp_path):
    run("csv", 1)
    run("csv", 3)
    with open(tmp_path / "metrics.csv") as f:
        rows = list(csv.DictReader(f))
    lines = rundir.read_lines(tmp_path)
    assert [int(row["round"]) for row in rows] == [1, 2, 3]
    for row, line in zip(rows, lines, strict=True):
        np.testing.assert_allclose(float(row["accuracy"]), np.mean(line["accuracy"]))
    assert "confusion" not in rows[0]


def test_tensorboard_holds_every_evaluation(run, tmp_path):
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    run("tensorboard", 1)
    run("tensorboard", 2)
    seen = []
    for path in sorted((tmp_path / "tensorboard").iterdir()):
        raw = path.read_bytes()
        while raw:
            size = int.from_bytes(raw[:8], "little")
            event = event_pb2.Event.FromString(raw[12 : 12 + size])
            seen += [(event.step, v.tag) for v in event.summary.value if v.tag == "accuracy"]
            raw = raw[12 + size + 4 :]
    assert seen == [(1, "accuracy"), (2, "accuracy")]


def test_weights_and_biases_resumes_one_run(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandb())
    run("wandb", 1)
    summary = run("wandb", 2)
    assert [step for step, _ in fake.logged] == [1, 2] and fake.finished == 2
    first, second = fake.started
    assert first["id"] == second["id"] and second["resume"] == "allow"
    assert first["config"]["dataset"]["name"] == "blobs"
    assert fake.summary["final_accuracy_last"] == summary["accuracy"]["last"]["mean"]


def test_mlflow_resumes_one_run(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mlflow", fake := FakeMlflow())
    run("mlflow", 1)
    run("mlflow", 2)
    assert fake.runs == [tmp_path.name, "id of a new run", "id of a new run"]
    assert [step for step, _ in fake.metrics] == [1, None, 2, None]
    assert fake.params["dataset.name"] == "blobs" and fake.ended == ["FINISHED", "FINISHED"]


def test_a_wrong_name_and_a_missing_package_are_one_sentence(run, tiny_config, monkeypatch):
    with pytest.raises(ValueError, match=r"loggers='cvs' .*tensorboard, csv, wandb, mlflow"):
        check(tiny_config(loggers="cvs"))
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match=r"fedjax_skew\[wandb\]"):
        run("wandb", 1)
    assert ", ".join(loggers.LOGGERS) in FIELDS["loggers"].rule.allowed
