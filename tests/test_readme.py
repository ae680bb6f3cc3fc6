"""What the README shows works."""

import pathlib
import re

import numpy as np

from fedjax_skew import methods

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_method_trains_and_is_short(simulate):
    code = re.search(r"```python\n(.*?)```", README, re.S)[1]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 15
    space: dict = {}
    exec(compile(code, "README.md", "exec"), space)
    done = simulate(space["fedtemper"](strength=0.3), rounds=2)
    assert np.isfinite(done.reports[0].loss).all()


def test_the_number_of_methods_is_right():
    assert f"({len(methods.REGISTRY)} methods by name" in README


def test_ci_runs_the_test_command_of_the_readme():
    ci = (pathlib.Path(__file__).parent.parent / ".ci" / "run").read_text()
    command = next(line for line in README.splitlines() if "pytest -n 2" in line)
    assert command in ci
