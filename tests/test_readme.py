"""What the README and CONTRIBUTING show works."""

import pathlib
import re

import numpy as np

from configs import quickstart
from fedjax_skew import methods
from fedjax_skew.runs import rundir

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def example(page, word):
    """The Python example of a page that has a word."""
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    return next(code for code in blocks if word in code)


def run(code):
    space: dict = {}
    exec(compile(code, "README.md", "exec"), space)
    return space


def test_the_example_method_trains_and_is_short(simulate):
    code = example(CONTRIBUTING, "fedtemper")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    done = simulate(run(code)["fedtemper"](strength=0.3), rounds=2)
    assert np.isfinite(done.reports[0].loss).all()


def test_the_library_example_is_short_learns_and_prints_numbers(capsys):
    code = example(README, "from_arrays")
    assert len(code.splitlines()) <= 12
    result = run(code)["result"]
    assert result.summary["accuracy"]["last"]["mean"] > 0.5
    assert "[0." in capsys.readouterr().out


def test_the_extras_are_named():
    setup = (ROOT / "setup.py").read_text()
    table = README.split("| extra | for |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row[:60])}
    declared = set(re.findall(r'^    "(\w+)": \[', setup, re.M)) | {"all"}
    assert declared <= named


def test_the_number_of_methods_is_right():
    stated = int(re.search(r"(\d+) methods\s+by name", README)[1])
    assert stated == len(methods.REGISTRY)


def test_ci_runs_the_test_command_of_the_readme():
    ci = (ROOT / ".ci" / "run").read_text()
    command = next(line for line in README.splitlines() if "pytest -n 2" in line)
    assert command in ci


def test_the_table_of_files_is_true_for_the_first_command():
    config = quickstart.get_config()
    assert not config.figures and not config.loggers
    table = README.split("| file | content |")[1].split("\n\n")[0]
    named = set(re.findall(r"METHOD/([\w.]+)", table))
    written = {rundir.CONFIG, rundir.IDENTITY, rundir.METRICS, rundir.SUMMARY}
    assert named == written | {rundir.PARTITION, rundir.CHECKPOINTS}
