"""What the README shows works."""

import pathlib
import re

import numpy as np

from fedjax_skew import methods

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text()


def example(word):
    """The Python example that has a word."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    return next(code for code in blocks if word in code)


def run(code):
    space: dict = {}
    exec(compile(code, "README.md", "exec"), space)
    return space


def test_the_example_method_trains_and_is_short(simulate):
    code = example("fedtemper")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    done = simulate(run(code)["fedtemper"](strength=0.3), rounds=2)
    assert np.isfinite(done.reports[0].loss).all()


def test_the_library_example_learns():
    result = run(example("from_arrays"))["result"]
    assert result.summary["accuracy"]["last"]["mean"] > 0.5


def test_the_kernel_example_computes():
    given = "import jax.numpy as jnp\nlogits, labels = jnp.zeros((4, 3)), jnp.arange(4) % 3\n"
    given += "class_counts, mask = jnp.array([5, 0, 2]), jnp.arange(4) < 3\n"
    assert np.isfinite(run(given + example("losses.fedlc"))["loss"])


def test_the_extras_are_named():
    setup = (pathlib.Path(__file__).parent.parent / "setup.py").read_text()
    table = README.split("| extra | for |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row[:60])}
    declared = set(re.findall(r'^    "(\w+)": \[', setup, re.M)) | {"all"}
    assert declared <= named


def test_the_number_of_methods_is_right():
    assert f"({len(methods.REGISTRY)} methods by name" in README


def test_ci_runs_the_test_command_of_the_readme():
    ci = (pathlib.Path(__file__).parent.parent / ".ci" / "run").read_text()
    command = next(line for line in README.splitlines() if "pytest -n 2" in line)
    assert command in ci
