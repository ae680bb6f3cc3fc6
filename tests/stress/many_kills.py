"""Kills and stops runs, a table and a sweep at random moments; every result must be the same.

    python -m tests.stress.many_kills [NUMBER] [CASE ...]

Each case is computed once without interruption. Then it is started again and again, each process
with a signal at a random moment, until it ends, and everything it left behind is compared; this
repeats until NUMBER (100) signals have been survived over all cases.
"""

import collections
import pathlib
import shutil
import signal
import sys
import tempfile

import numpy as np

from tests.stress.processes import TRAIN, contents, finish, start

# (pattern, largest count, largest delay in seconds) of moments worth aiming at; see killed.py.
MOMENTS = {
    "anywhere": ("*", 60, 0.5),
    "compile": ("*partition.csv*", 2, 3.0),
    "cache of programs": ("* */xla/*", 6, 0.0),
    "round": ("*metrics.jsonl*", 4, 0.05),
    "checkpoint": ("*/checkpoints/*", 30, 0.02),
    "seal": ("*/checkpoints/*.json*", 6, 0.0),
    "identity": ("*/identity.json*", 2, 0.0),
    "summary": ("*/summary.json*", 2, 0.0),
}
METHODS = {
    "fedavg": [],
    "scaffold": ["--config.participation=0.6", "--config.momentum=0.5"],
    "fedlc": ["--config.eval_every=3", "--config.checkpoint_every=1"],
    "moon": ["--config.model=mlp", "--config.state_placement=host"],
    "fedlc_lt": [
        "--config.model=mlp",
        "--config.hparams.fedlc_lt.steps=3",
        "--config.server_data.labelled=0.005",
    ],
    "ccvr": ["--config.model=mlp", "--config.hparams.ccvr.samples_per_class=8"],
    "fedconcat": [
        "--config.model=mlp",
        "--config.hparams.fedconcat.num_clusters=2",
        "--config.hparams.fedconcat.encoder_rounds=3",
    ],
}
CASES = {name: [*TRAIN, f"--config.method={name}", *more] for name, more in METHODS.items()}
CASES["table"] = [
    "experiments.reproduce",
    "--table=fedlc/table4",
    "--only=method=fedavg,fedprox,partition=synthetic(1,1)",
    "--seeds=1",
    "--rounds=6",
    *(f"--set={k}=2" for k in ("eval_every", "checkpoint_every")),
    *("--set=num_clients=5", "--set=num_devices=1"),
]
CASES["sweep"] = [
    "experiments.sweep",
    *TRAIN[1:],
    "--config.num_seeds=1",
    "--config.method=fedlc",
    "--grid=client_lr=0.01,0.1",
]


def survive(base: pathlib.Path, case: str, wanted: int, rng: np.random.Generator) -> list[str]:
    """Returns the signals that a case survived, at least ``wanted``."""
    command, whole = CASES[case], base / "whole"
    finish(whole, *command)
    expected = contents(whole / "run")
    survived: list[str] = []
    trial = 0
    while len(survived) < wanted:
        folder, code = base / str(trial), None
        folder.mkdir()
        if trial % 2 == 0:  # Every second run starts without compiled programs.
            shutil.copytree(whole / "xla", folder / "xla")
        while code != 0:
            aim = str(rng.choice(list(MOMENTS)))
            pattern, most, delay = MOMENTS[aim]
            moment = {
                "name": str(rng.choice(["SIGKILL"] * 5 + ["SIGTERM", "SIGINT"])),
                "pattern": pattern,
                "count": int(rng.integers(1, most + 1)) if len(survived) < 2 * wanted else 0,
                "delay": float(rng.uniform(0, delay)),
            }
            process = start(folder, *command, **moment)
            _, errors = process.communicate()
            code = process.returncode
            allowed = -signal.SIGKILL if moment["name"] == "SIGKILL" else 130
            assert code in (0, allowed), f"{case} {aim} {moment}\n{errors[-3000:]}"
            survived += [f"{moment['name']} {aim}"] * (code != 0)
        found = contents(folder / "run")
        differs = [n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n)]
        assert not differs, f"{case}: trial {trial} differs in {differs} after {survived}"
        shutil.rmtree(folder)
        trial += 1
    return survived


def main(number: str = "100", *cases: str) -> None:
    """Divides the signals over the cases."""
    chosen = cases or tuple(CASES)
    rng = np.random.default_rng()  # Every run tries other moments.
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            base = pathlib.Path(folder) / case
            base.mkdir()
            survived = survive(base, case, -(-int(number) // len(chosen)), rng)
            total += len(survived)
            counts = collections.Counter(survived).most_common()
            words = ", ".join(f"{n} x {moment}" for moment, n in counts)
            print(f"{case}: {len(survived)} signals, all results equal ({words})", flush=True)
    print(f"{total} signals survived by {len(chosen)} cases.")


if __name__ == "__main__":
    main(*sys.argv[1:])
