"""Sweeps: what is planned, what is selected, and how it is shown."""

import csv
import dataclasses
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from experiments import grid, selection, sweep
from experiments.cells import plan_points
from experiments.sweep_pictures import draw, scale
from experiments.sweep_results import Result, Sweep
from experiments.sweep_tables import to_csv, to_markdown
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
    config = default_config()
    config.loggers = "nowhere"
    with pytest.raises(ValueError, match="loggers='nowhere'"):
        plan_points(config, [{"method": "fedavg"}], tmp_path)
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
    assert found.selected()[0].point["client_lr"] == 0.1
    text = to_markdown(found, "python")
    assert "| **0.1** | **75.00 ± 7.07** | **55.00 ± 7.07** |" in text
    assert "by mean validation accuracy" in text
    on_test = make([(values, accuracy) for values, accuracy, _ in numbers])
    assert on_test.selected()[0].point["client_lr"] == 0.2
    assert "is optimistic" in to_markdown(on_test, "python")


def test_points_that_are_not_finished_or_not_finite_are_not_selected():
    found = make([((0.1,), [0.5]), ((0.2,), [float("nan")]), ((0.3,), [0.9], None, "running")])
    assert found.selected()[0].point["client_lr"] == 0.1
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


def test_the_command_names_no_directory_and_no_machine():
    words = ["--workdir=/a/b", "--grid=client_lr=0.1, 0.2", "--jobs=2"]
    words += ["--config.dataset.data_dir=/c", "--config.seed=1"]
    assert sweep.command(words) == (
        "python -m experiments.sweep --workdir=DIR '--grid=client_lr=0.1, 0.2' "
        "--config.dataset.data_dir=DIR --config.seed=1"
    )


def test_calls_are_drawn_by_the_argument_in_which_they_differ():
    found = scale("partition", ["dirichlet(beta=0.1)", "dirichlet(beta=1)"])
    assert found.label == "beta of dirichlet" and found.numeric and found.log
    assert list(found.shown.values()) == [0.1, 1.0]
    several = ["shards(alpha=2, balance=true)", "shards(alpha=2, balance=false)"]
    assert scale("partition", several).label == "balance of shards(alpha=2)"
    for words in (
        ["iid", "natural"],
        ["a(b=1, c=1)", "a(b=2, c=2)"],
        ["a(1)", "a(2)"],
        ["/a", "/b"],
    ):
        assert scale("partition", words) == ("partition", dict(zip(words, words, strict=True)))
    assert (
        scale("method", ["fedavg", "fedlc+scaffold"]).shown["fedlc+scaffold"] == "FedLC + SCAFFOLD"
    )


def test_points_are_selected_within_a_partition_and_framed_in_the_heat_map():
    partitions = ("dirichlet(beta=0.1)", "dirichlet(beta=1)")
    numbers = [
        ((tau, partition), [0.5], [0.1 * tau + place])
        for place, partition in enumerate(partitions)
        for tau in (1, 2)
    ]
    found = make(numbers, ("client_lr", "partition"))
    assert [r.point["client_lr"] for r in found.selected()] == [2, 2]
    assert "for each partition by mean validation accuracy" in to_markdown(found, "python")
    axis = draw(found)["sweep"].axes[0]
    assert axis.get_xlabel() == "beta of dirichlet"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0.1", "1"]
    assert {(p.get_x() + 0.46, p.get_y() + 0.46) for p in axis.patches} == {(0, 1), (1, 1)}


def test_a_method_without_the_field_fills_its_row_of_the_heat_map():
    results = [Result({"method": "fedavg"}, (record([0.4]),))]
    for form in ("paper", "code"):
        point = {"method": "fedlc", "hparams.fedlc.form": form}
        results.append(Result(point, (record([0.6]),)))
    found = Sweep(("method", "hparams.fedlc.form"), tuple(results))
    assert draw(found)["sweep"].axes[0].images[0].get_array().tolist() == [[40, 40], [60, 60]]


@pytest.fixture
def communicated(tmp_path):
    """A sweep of two methods, of which one keeps its heads; run directories with metrics."""
    results = []
    for method, megabytes, own in (("fedavg", 2, {}), ("fedper", 1, {"personal_local": 0.9})):
        path = tmp_path / method
        path.mkdir()
        lines = [
            {"round": r, "accuracy": [0.3 * r, 0.25 * r]}
            | {f"bytes_{way}": [megabytes * r * 500_000] * 2 for way in ("down", "up")}
            for r in (1, 2)
        ]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        found = record([0.6, 0.5])
        found.summary.update({k: v for k, v in lines[-1].items() if k.startswith("bytes")})
        for name, value in {"global_local": 0.5, **own}.items():
            found.summary[f"{name}_accuracy"] = {"last": {"per_seed": [value] * 2}}
        found = dataclasses.replace(found, path=path)
        results.append(Result({"method": method}, (found,)))
    return Sweep(("method",), tuple(results), target=55.0)


def test_the_table_has_megabytes_and_accuracy_per_megabyte(communicated):
    head, _, fedavg, fedper, *_ = to_markdown(communicated, "python").splitlines()
    assert [words.strip() for words in head.split("|")[1:-1]] == [
        "method",
        "test accuracy (%)",
        "accuracy on own labels (%)",
        "megabytes",
        "test accuracy per megabyte",
        "accuracy on own labels per megabyte",
        "megabytes to 55 %",
        "seconds",
    ]
    missed = "not reached by 1 of 2 seeds"
    assert fedavg == f"| fedavg | 55.00 ± 7.07 | 50.00 ± 0.00 | 4.00 | 13.8 | 12.5 | {missed} | 2 |"
    assert fedper == f"| fedper | 55.00 ± 7.07 | 90.00 ± 0.00 | 2.00 | 27.5 | 45.0 | {missed} | 2 |"
    hard = dataclasses.replace(communicated, target=65.0)
    assert "| not reached | 2 |" in to_markdown(hard, "python")
    easy = dataclasses.replace(communicated, target=45.0)
    assert "| 4.00 |" in to_markdown(easy, "python").splitlines()[2].removeprefix(fedavg[:40])
    row = next(csv.DictReader(io.StringIO(to_csv(communicated))))
    assert (row["bytes_down"], row["bytes_up"]) == ("2000000", "2000000")


def test_curves_of_a_sweep_have_a_panel_against_megabytes(communicated):
    over_rounds, against_megabytes = draw(communicated)["sweep_curves"].axes
    assert over_rounds.get_xlabel() == "round"
    assert "megabytes" in against_megabytes.get_xlabel()
    fedavg, fedper = against_megabytes.lines
    assert (list(fedavg.get_xdata()), list(fedper.get_xdata())) == ([2, 4], [1, 2])
    assert fedper.get_label() == "FedPer"
    assert list(fedavg.get_ydata()) == list(fedper.get_ydata())


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
