"""Sweeps: what is planned, what is selected, and how it is shown."""

import csv
import io
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from experiments import grid, selection, sweep
from experiments.cells import plan_points
from experiments.sweep_results import Result, Sweep, draw, to_csv, to_markdown
from fedjax_skew.config import default_config
from fedjax_skew.runs.store import Record

ROOT = pathlib.Path(__file__).parent.parent.parent


def record(accuracy, validation=None, status="finished"):
    """A run with the given accuracies by seed."""

    def kinds(values):
        kinds = ("last", "best", "mean_last_50", "at_best_validation")
        return {kind: {"per_seed": values} for kind in kinds}

    summary = {"status": status, "seeds": list(range(len(accuracy))), "wall_seconds": 2.0}
    summary |= {"accuracy": kinds(accuracy), "macro_f1": kinds(accuracy)}
    if validation:
        summary["validation_accuracy"] = kinds(validation)
    return Record(pathlib.Path("cells/x"), {}, summary if status == "finished" else {}, "", False)


def make(numbers, fields=("client_lr",), **options):
    """A sweep from ``(values of the fields, accuracy, validation accuracy)`` of every point."""
    results = []
    for values, *scores in numbers:
        point = {"method": "fedavg", **dict(zip(fields, values, strict=True))}
        results.append(Result(point, (record(*scores),)))
    return Sweep(fields, tuple(results), **options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", ""), "methods='' names no method"),
        (("", " , "), "names no method"),
        (("", None), "sweeps no field"),
        (("", "fedavg", 3), "sweeps no field"),
        (("method=fedavg", "fedlc"), "incompatible"),
    ],
)
def test_a_sweep_of_nothing_is_one_sentence(arguments, words):
    with pytest.raises(ValueError, match=words):
        sweep.swept(default_config(), *arguments)


def test_methods_are_an_axis_of_their_own():
    config = default_config()
    assert sweep.swept(config, "client_lr=0.1", None)[1] == ["fedavg"]
    assert sweep.swept(config, "", "fedlc, fedlc+scaffold")[1] == ["fedlc", "fedlc+scaffold"]
    assert sweep.swept(config, "method=fedlc,moon", None) == ({}, ["fedlc", "moon"])
    assert "scaffold" in sweep.swept(config, "", "all")[1]


def test_points_are_checked_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="labelled server data"):
        plan_points(default_config(), [{"method": "fedic"}], tmp_path)
    with pytest.raises(ValueError, match="method='fedavgg'"):
        plan_points(default_config(), [{"method": "fedavgg"}], tmp_path)


def test_runs_are_in_the_store_of_tables(tmp_path):
    points = grid.points(grid.parse("client_lr=0.1,0.2"), ["fedavg"])
    planned = plan_points(default_config(), points, tmp_path)
    for point, (cell,) in planned:
        assert cell.directory == tmp_path / "cells" / selection.Run(cell.config, ()).name
        assert cell.config.client_lr == point["client_lr"]
    config = default_config()
    config.num_seeds = 3
    ((_, cells),) = plan_points(config, points[:1], tmp_path, split=True)
    assert [(c.config.seed, c.config.num_seeds) for c in cells] == [(0, 1), (1, 1), (2, 1)]


def test_points_are_selected_on_validation_and_reported_on_the_test_set():
    numbers = [((0.1,), [0.5, 0.6], [0.7, 0.8]), ((0.2,), [0.9, 0.9], [0.6, 0.8])]
    found = make(numbers)
    assert found.validated
    assert found.selected()["fedavg"].point["client_lr"] == 0.1
    text = to_markdown(found, "python")
    assert "| **0.1** | **75.00 ± 7.07** | **55.00 ± 7.07** |" in text
    assert "by mean validation accuracy" in text
    on_test = make([(values, accuracy) for values, accuracy, _ in numbers])
    assert on_test.selected()["fedavg"].point["client_lr"] == 0.2
    assert "flatters" in to_markdown(on_test, "python")


def test_points_that_are_not_finished_or_not_finite_are_not_selected():
    found = make([((0.1,), [0.5]), ((0.2,), [float("nan")]), ((0.3,), [0.9], None, "running")])
    assert found.selected()["fedavg"].point["client_lr"] == 0.1
    assert "| 0.3 | new |" in to_markdown(found, "python")


def test_the_csv_has_one_row_per_point_and_seed():
    found = make([((0.1,), [0.5, 0.6], [0.7, 0.8]), ((0.2,), [0.9, 0.9], [0.6, 0.8])])
    rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert [(r["client_lr"], r["seed"], r["accuracy_last"]) for r in rows] == [
        ("0.1", "0", "0.5"),
        ("0.1", "1", "0.6"),
        ("0.2", "0", "0.9"),
        ("0.2", "1", "0.9"),
    ]
    assert rows[1]["validation_accuracy_best"] == "0.8"


def test_the_picture_follows_the_number_of_fields():
    one = make([((0.1,), [0.5]), ((1.0,), [0.6])])
    (axis,) = draw(one)["sweep"].axes
    assert axis.get_xscale() == "log" and axis.get_xlabel() == "client_lr"
    two = make(
        [((a, b), [0.5 + a]) for a in (0.1, 0.2) for b in (8, 16)], ("client_lr", "batch_size")
    )
    assert len(draw(two)["sweep"].axes[0].images) == 1
    random = make([((a, 8), [a]) for a in (0.1, 0.2)], two.fields, scattered=True)
    assert len(draw(random)["sweep"].axes) == 2
    words = make([((a,), [0.5]) for a in ("iid", "natural")], ("partition",))
    assert len(draw(words)["sweep"].axes[0].images) == 1
    assert draw(make([((0.1,), [0.5], None, "running")])) == {}


def test_a_method_without_the_field_is_a_level_line():
    fields = ("method", "hparams.fedlc.tau")
    results = [Result({"method": "fedavg"}, (record([0.4]),))]
    for tau in (0.5, 1.0):
        point = {"method": "fedlc", "hparams.fedlc.tau": tau}
        results.append(Result(point, (record([tau]),)))
    (axis,) = draw(Sweep(fields, tuple(results)))["sweep"].axes
    level = axis.containers[0].lines[0]
    assert list(level.get_xdata()) == [0.5, 1.0]
    assert list(level.get_ydata()) == [40.0, 40.0]


@pytest.mark.slow
def test_an_interrupted_sweep_continues(tmp_path):
    command = [sys.executable, "-m", "experiments.sweep", "--config=configs/quickstart.py"]
    command += ["--config.num_seeds=1", "--config.rounds=40", "--config.num_clients=10"]
    command += ["--grid=client_lr=0.01,0.1; batch_size=32,64", f"--workdir={tmp_path}"]
    environment = {**os.environ, "XLA_FLAGS": ""}
    first = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    while first.poll() is None and not list(tmp_path.glob("cells/*/metrics.jsonl")):
        time.sleep(0.2)
    first.send_signal(signal.SIGTERM)
    assert "the same command resumes" in first.communicate()[1]
    assert first.returncode == 130
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("cells/*/summary.json"))) == 4
    assert {p.name for p in tmp_path.glob("sweep.*")} == {
        "sweep.csv",
        "sweep.md",
        "sweep.pdf",
        "sweep.png",
    }
