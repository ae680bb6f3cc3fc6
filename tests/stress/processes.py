"""Runs as processes of their own that get a signal, and what they leave behind."""

import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import orbax.checkpoint as ocp

from fedjax_skew.runs import checkpoint

ROOT = pathlib.Path(__file__).parent.parent.parent
TIMES = ("seconds", "wall_seconds", "compile_seconds", "samples_per_second")
SMALL = {
    "num_clients": 5,
    "num_devices": 1,
    "num_seeds": 2,
    "local_epochs": 1,
    "rounds": 6,
    "eval_every": 2,
    "checkpoint_every": 2,
}
TRAIN = ["experiments.train", *(f"--config.{k}={v}" for k, v in SMALL.items())]


def start(base, *command, name="SIGKILL", pattern="*", count=0, delay=0.0):
    """A process that writes below ``base`` only, and gets a signal when it is there."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(base / "xla")}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    trap = [str(ROOT / "tests/stress/killed.py"), name, str(base), pattern, str(count), str(delay)]
    return subprocess.Popen(
        [sys.executable, *trap, *command, f"--workdir={base / 'run'}"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(base, *command, code=0, **moment):
    """Runs a process, checks how it ended and returns its last line on stderr."""
    process = start(base, *command, **moment)
    _, errors = process.communicate()
    assert process.returncode == code, errors[-3000:]
    return errors.strip().splitlines()[-1] if errors.strip() else ""


def contents(run):
    """Everything below a directory but times: texts, parsed JSON, the newest checkpoint's arrays.

    Hidden files are left out: the lock, and tables that a killed process has half written. So are
    pictures and ``sweep.md``, which show what ``sweep.csv`` and the runs hold.
    """
    found = {}
    for path in sorted(p for p in run.rglob("*") if p.is_file()):
        name = str(path.relative_to(run))
        if path.name.startswith(".") or "/checkpoints/" in f"/{name}":
            continue
        if path.suffix in (".png", ".pdf", ".svg") or path.name == "sweep.md":
            continue
        text = path.read_text()
        if path.suffix == ".json":
            found[name] = without_times(json.loads(text))
        elif path.suffix == ".jsonl":
            found[name] = [without_times(json.loads(line)) for line in text.splitlines()]
        elif path.suffix == ".csv":
            found[name] = [without_times(row) for row in csv.DictReader(io.StringIO(text))]
        else:
            found[name] = re.sub(r"[\d.]+ h in total", "", text)
    for folder in run.rglob("checkpoints"):
        rounds = checkpoint.rounds(folder)
        kept = {f"{r}{end}" for r in rounds for end in ("", ".json")}
        assert {p.name for p in folder.iterdir()} == kept
        assert checkpoint.newest(folder) == rounds[0]
        found[f"{folder.relative_to(run)}/{rounds[0]}"] = arrays(folder / str(rounds[0]))
    return found


def arrays(path):
    """The arrays of a checkpoint by name, as bytes."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        saved = checkpointer.metadata(path)
        tree = getattr(saved, "item_metadata", saved).tree  # Older versions give it directly.
        plain = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        tree = checkpointer.restore(path, restore_args=plain)
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(k): np.asarray(v).tobytes() for k, v in leaves}


def without_times(value):
    """A JSON value without how long it took."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in TIMES}
    return value
