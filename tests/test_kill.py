"""Real processes, killed and stopped at many moments: nothing is lost and every number is the same.

The long form takes minutes: ``pytest -m slow tests/test_kill.py``; FEDJAX_SKEW_KILLS sets how many
kills each of its cases gets (8).
"""

import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from configs.quickstart import get_config
from fedjax_skew.runs import checkpoint, rundir
from fedjax_skew.runs.train import train_and_evaluate

ROOT = pathlib.Path(__file__).parent.parent
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
# (pattern, largest count, largest delay in seconds) of moments worth aiming at; see killed.py.
MOMENTS = {
    "anywhere": ("*", 60, 0.5),
    "compile": ("*partition.csv*", 2, 3.0),
    "cache of programs": ("* */xla/*", 6, 0.0),
    "round": ("*metrics.jsonl*", 4, 0.05),
    "checkpoint": ("*/checkpoints/*", 30, 0.02),
    "seal": ("*/checkpoints/*.json*", 6, 0.0),
    "summary": ("*/summary.json*", 2, 0.0),
}


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
    """Everything below a directory but times: texts, parsed JSON, the arrays of checkpoints."""
    found = {}
    for path in sorted(p for p in run.rglob("*") if p.is_file()):
        name = str(path.relative_to(run))
        if path.name == ".lock" or "/checkpoints/" in f"/{name}":
            continue
        text = path.read_text()
        if path.suffix == ".json":
            found[name] = without_times(json.loads(text))
        elif path.suffix == ".jsonl":
            found[name] = [without_times(json.loads(line)) for line in text.splitlines()]
        else:
            found[name] = re.sub(r"[\d.]+ h in all", "", text)
    for folder in run.rglob("checkpoints"):
        rounds = checkpoint.rounds(folder)
        kept = {f"{r}{end}" for r in rounds for end in ("", ".json")}
        assert {p.name for p in folder.iterdir()} == kept
        for round_ in rounds:
            assert checkpoint._problem(folder / str(round_)) is None
            found[f"{folder.relative_to(run)}/{round_}"] = arrays(folder / str(round_))
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
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in TIMES}
    return value


def test_a_run_that_is_killed_and_stopped_ends_as_if_nothing_had_happened(tmp_path):
    config = get_config()
    config.update(SMALL)
    train_and_evaluate(config, tmp_path / "whole", progress=False)
    # Killed while the second checkpoint is made whole: the first one is used.
    kill = {"code": -signal.SIGKILL, "count": 1}
    finish(tmp_path, *TRAIN, **kill, pattern="os.rename *checkpoints/4*")
    assert checkpoint.rounds(tmp_path / "run/checkpoints") == [2]
    # Stopped in the fourth round: it finishes its rounds, saves, and says how to go on.
    term = {"code": 130, "name": "SIGTERM", "count": 1}
    said = finish(tmp_path, *TRAIN, **term, pattern="open *metrics.jsonl a")
    assert said == (
        "Stopped by SIGTERM after round 4 of 6; round 4 is saved, the same command resumes from "
        "there."
    )
    assert checkpoint.rounds(tmp_path / "run/checkpoints") == [4, 2]
    # Killed when the summary is written, but not yet in its place.
    finish(tmp_path, *TRAIN, **kill, pattern="os.rename *summary.json*")
    finish(tmp_path, *TRAIN)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_directory_in_use_is_refused_and_one_of_a_dead_process_is_not(tmp_path):
    with rundir.owned(tmp_path / "run"):
        said = finish(tmp_path, *TRAIN, code=2)
    assert f"run' is in use by process {os.getpid()} on " in said
    # The same file, which still names a process, but nobody holds it: the run starts, and diverges.
    said = finish(tmp_path, *TRAIN, "--config.client_lr=1e30", code=3)
    assert re.search(r"fedavg.* round 1.* client.*1e\+30", said)
    assert said in (tmp_path / "run/summary.json").read_text()


METHODS = {
    "fedavg": [],
    "scaffold": ["--config.participation=0.6", "--config.momentum=0.5"],
    "fedlc_lt": [
        "--config.model=mlp",
        "--config.hparams.fedlc_lt.steps=3",
        "--config.server_data.labelled=0.005",
    ],
    "creff": [
        "--config.model=mlp",
        *(
            f"--config.hparams.creff.{k}=2"
            for k in ("images_per_class", "match_steps", "classifier_epochs", "repeats")
        ),
    ],
    "fedconcat": [
        "--config.model=mlp",
        "--config.hparams.fedconcat.num_clusters=2",
        "--config.hparams.fedconcat.encoder_rounds=3",
    ],
}
COMMANDS = {name: [*TRAIN, f"--config.method={name}", *more] for name, more in METHODS.items()}
COMMANDS["table"] = [
    "experiments.reproduce",
    "--table=fedlc/table4",
    "--only=method=fedavg,fedprox,partition=synthetic(1,1)",
    "--seeds=1",
    "--rounds=6",
    *(f"--set={k}=2" for k in ("eval_every", "checkpoint_every")),
    *("--set=num_clients=5", "--set=num_devices=1"),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", COMMANDS)
def test_many_kills_change_nothing(tmp_path, case, capsys):
    rng = np.random.default_rng()  # Every run of this test tries other moments.
    finish(tmp_path / "whole", *COMMANDS[case])
    expected = contents(tmp_path / "whole/run")
    wanted, survived, trial = int(os.environ.get("FEDJAX_SKEW_KILLS", 8)), [], 0
    while len(survived) < wanted:
        base, code = tmp_path / str(trial), None
        base.mkdir()
        if trial % 2 == 0:  # Every second run starts without compiled programs.
            shutil.copytree(tmp_path / "whole/xla", base / "xla")
        while code != 0:
            aim = str(rng.choice(list(MOMENTS)))
            pattern, most, delay = MOMENTS[aim]
            count = int(rng.integers(1, most + 1)) if len(survived) < 2 * wanted else 0
            delay = float(rng.uniform(0, delay))
            name = str(rng.choice(["SIGKILL"] * 5 + ["SIGTERM", "SIGINT"]))
            moment = {"name": name, "pattern": pattern, "count": count, "delay": delay}
            process = start(base, *COMMANDS[case], **moment)
            _, errors = process.communicate()
            code = process.returncode
            expected_code = -signal.SIGKILL if name == "SIGKILL" else 130
            assert code in (0, expected_code), f"{aim} {moment}\n{errors[-3000:]}"
            survived += [f"{name} {aim}"] * (code != 0)
        assert contents(base / "run") == expected
        trial += 1
    with capsys.disabled():
        counts = collections.Counter(survived).most_common()
        words = ", ".join(f"{number} x {moment}" for moment, number in counts)
        print(f"\n{case}: {len(survived)} signals in {trial} runs survived: {words}")
