"""A kernel, a method, a dataset and a table, added to a copy of the package and used together."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent

KERNEL = '''
"""Squared error of probabilities."""

import jax
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def brier(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Returns the squared distance of the softmax from the label, per example."""
    (logits,) = _common.promote_floats(logits=logits)
    labels = _common.check_labels(logits, labels)
    true = jax.nn.one_hot(labels, logits.shape[-1])
    return ((jax.nn.softmax(logits) - true) ** 2).sum(-1)
'''

METHOD = '''
"""FedBrier: the Brier score as the local loss."""

from typing import Annotated

from fedjax_skew import losses
from fedjax_skew.checks import above, validated
from fedjax_skew.methods.base import Method


@validated("hparams.fedbrier")
def fedbrier(*, scale: Annotated[float, above(0)] = 2.0) -> Method:
    """Brier score of the logits."""

    def loss(context):
        return context.mean(scale * losses.brier(context.outputs.logits, context.batch.labels))

    return Method("fedbrier", loss=loss)
'''

DATASET = """

def _blobs(seed: int = 0) -> Dataset:
    import numpy as np

    rng = np.random.default_rng(seed)
    y = np.arange(300) % 3
    x = 4 * np.eye(3)[y] + rng.normal(size=(300, 3))
    return Dataset.from_arrays(x[:240], y[:240], x[240:], y[240:], name="blobs")


register(DatasetInfo("blobs", "Blobs", "three Gaussian blobs", reader=_blobs, source="none"))
"""

TABLE = {
    "caption": "Three blobs.",
    "footnotes": [],
    "common": {
        "dataset": "blobs",
        "model": "logistic",
        "setting": "clients=20",
        "metric": "accuracy",
    },
    "columns": [{"partition": "dirichlet(beta=0.5)"}],
    "rows": [
        {"method": "fedavg", "cells": ["50.00±1.00"]},
        {"method": "fedbrier", "cells": ["60.00±1.00"]},
    ],
}


def add_kernel(root):
    (root / "fedjax_skew/losses/_brier.py").write_text(KERNEL.lstrip())
    insert(
        root / "fedjax_skew/losses/__init__.py",
        ("from fedjax_skew.losses._contrastive", "from fedjax_skew.losses._brier import brier\n"),
        ('    "calfat",', '    "brier",\n'),
    )


def add_method(root):
    (root / "fedjax_skew/methods/fedbrier.py").write_text(METHOD.lstrip())
    entry = '    "fedbrier": Entry("FedBrier"),\n'
    insert(root / "fedjax_skew/methods/__init__.py", ('    "fedbn": Entry', entry))


def add_dataset(root):
    with open(root / "fedjax_skew/data/catalog.py", "a") as file:
        file.write(DATASET)


def add_table(root):
    path = root / "configs/fedlc.json"
    paper = json.loads(path.read_text())
    paper["tables"]["table9"] = TABLE
    path.write_text(json.dumps(paper))


def insert(path, *places):
    """Inserts text before the first line that starts with a mark, for every (mark, text)."""
    content = path.read_text()
    for mark, text in places:
        assert content.count(f"\n{mark}") == 1
        content = content.replace(f"\n{mark}", f"\n{text}{mark}")
    path.write_text(content)


def files(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def counts_and_root(tmp_path_factory):
    """The package with all four additions, and the number of files that each of them touched."""
    root = tmp_path_factory.mktemp("checkout")
    ignore = shutil.ignore_patterns("__pycache__", "results")
    for package in ("fedjax_skew", "experiments", "configs"):
        shutil.copytree(ROOT / package, root / package, ignore=ignore)
    counts = {}
    for add in (add_kernel, add_method, add_dataset, add_table):
        before = files(root)
        add(root)
        after = files(root)
        counts[add.__name__] = sum(before.get(path) != after[path] for path in after)
    return counts, root


def test_an_addition_touches_as_few_files_as_documented(counts_and_root):
    counts, _ = counts_and_root
    assert counts == {"add_kernel": 2, "add_method": 2, "add_dataset": 1, "add_table": 1}
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for words in ("kernel: two files", "method: two files", "dataset: one file", "table: one file"):
        assert words in text


def test_the_additions_work_together_in_one_command(counts_and_root):
    _, root = counts_and_root
    command = "-m experiments.reproduce --table=fedlc/table9 --workdir=out --rounds=3 --seeds=1"
    done = subprocess.run(
        [sys.executable, *command.split(), "--set=hparams.fedbrier.scale=3", "--set=client_lr=0.1"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (root / "out").glob("fedlc_table9_*.md")
    table = path.read_text()
    assert "Three blobs." in table
    (row,) = [line for line in table.splitlines() if line.startswith("| FedBrier")]
    measured = float(row.split("|")[2].strip(" *").split("*")[0].split()[0])
    assert 50 < measured <= 100
