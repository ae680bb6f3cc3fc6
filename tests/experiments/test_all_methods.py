"""The table of all methods: what it plans, and what it says of a run."""

import pathlib
import subprocess
import sys

import pytest

from configs.all_methods import PROBLEMS, get_config
from experiments import all_methods
from fedjax_skew import methods
from fedjax_skew.config import check
from fedjax_skew.runs.store import Record


def record(seconds, **summary):
    made = Record(pathlib.Path(), {}, {"status": "finished", **summary}, "", False)
    made.__dict__["lines"] = [{"round": 2 * i + 2, "seconds": s} for i, s in enumerate(seconds)]
    return made


def finished(accuracy, seconds, **more):
    numbers = {which: {"per_seed": [accuracy]} for which in ("last", "best")}
    summary = {"accuracy": numbers, "client_state_bytes": 2_000_000, "server_data": []}
    return record(seconds, bytes_up=[1e6], bytes_down=[3e6], **summary, **more)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_method_is_planned_and_valid_on_every_problem(problem, tmp_path):
    planned = all_methods.plan(problem, tmp_path)
    assert planned[0].config.method == "fedavg"
    assert {c.config.method for c in planned} == set(methods.REGISTRY)
    assert {c.config.partition for c in planned} == {get_config(problem).partition}
    for cell in planned:
        check(cell.config)


def test_a_row_has_accuracy_cost_and_memory(tmp_path):
    own = {"last": {"per_seed": [0.9]}}
    plan = {cell.config.method: cell for cell in all_methods.plan("mnist", tmp_path)}
    personal = {"personal_local_accuracy": own, "personal_local_worst_decile": own}
    records = {
        "fedavg": finished(0.8, [2.0, 4.0]),
        "fedsam": finished(0.7, [9.0, 12.0], **personal),
        "fedlc": Record(pathlib.Path(), {}, {}, "not finite", False),
    }
    rows = [all_methods.line(record, plan[name].config) for name, record in records.items()]
    text = all_methods.to_markdown(rows, [plan["fedavg"]], "python -m this")
    assert "| FedAvg (`fedavg`) | 80.00 | 80.00 |  | 1.00x | 2.00 | 4.0 |  |" in text
    (sam,) = [text for text in text.splitlines() if text.startswith("| FedSAM")]
    assert sam.startswith("| FedSAM (`fedsam`) | 70.00 | 70.00 | 90.00 (90.00) | ")
    assert 1.8 < float(sam.split("|")[5].strip(" x")) < 2.2  # It takes two gradients.
    assert "| FedLC (`fedlc`) | failed: not finite |" in text
    assert all_methods.to_csv(rows).splitlines()[1].startswith("fedavg,finished,80.0,80.0,,,")
    assert rows[1].seconds == 1.5


def test_unknown_names_are_answered_in_one_sentence_and_help_is_no_error(tmp_path):
    command = [sys.executable, "-m", "experiments.all_methods", f"--workdir={tmp_path}"]
    done = subprocess.run([*command, "--problems=mnits"], capture_output=True, text=True)
    assert done.returncode == 2 and "problems='mnits'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    done = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--problems" in done.stdout
