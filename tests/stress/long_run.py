"""Trains a tiny problem for very many rounds and plots memory and time per round.

    python tests/stress/long_run.py OUTPUT.png [ROUNDS]

The training is a process of its own; its memory is read from the system and its rounds from
``metrics.jsonl`` while it runs. Ends with an error if memory or time per round grows.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

EVERY = 10
FLAGS = {
    "num_clients": 10,
    "num_seeds": 1,
    "local_epochs": 0,
    "local_steps": 2,
    "eval_every": EVERY,
    "num_devices": 1,
    "loggers": "tensorboard",
}


def watch(workdir: pathlib.Path, rounds: int) -> list[tuple[int, float]]:
    """Trains, and returns (round, resident megabytes) as seen from outside."""
    flags = [f"--config.{name}={value}" for name, value in {**FLAGS, "rounds": rounds}.items()]
    command = [sys.executable, "-m", "experiments.train", f"--workdir={workdir}", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen = []
    while process.poll() is None:
        time.sleep(0.5)
        path = workdir / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        lines = [line for line in lines if line.endswith("\n")]
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        if lines and "VmRSS" in status:
            kilobytes = int(status.split("VmRSS:")[1].split()[0])
            seen.append((json.loads(lines[-1])["round"], kilobytes / 1024))
    if process.returncode:
        sys.exit(f"The training ended with code {process.returncode}.")
    return seen


def _size(path: pathlib.Path) -> int:
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def main(output: str, rounds: str = "5000") -> None:
    """Watches one training, draws, and compares its first with its last part."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder) / "run"
        seen = np.array(watch(workdir, int(rounds)))
        lines = [json.loads(t) for t in (workdir / "metrics.jsonl").read_text().splitlines()]
        size = {p.name: _size(p) for p in workdir.iterdir()}
    at = np.array([line["round"] for line in lines])
    milliseconds = 1e3 * np.diff([line["seconds"] for line in lines], prepend=0) / EVERY
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    axes[0].plot(seen[:, 0], seen[:, 1])
    axes[0].set(xlabel="round", ylabel="resident memory (MB)", ylim=(0, None))
    axes[1].plot(at, milliseconds, ".", markersize=2)
    highest = 3 * np.median(milliseconds)  # Start and hiccups are outside.
    axes[1].set(xlabel="round", ylabel="time per round (ms)", ylim=(0, highest))
    figure.savefig(output, dpi=120)
    late = seen[seen[:, 0] > int(rounds) / 5]
    growth = np.polyfit(late[:, 0], late[:, 1], 1)[0] * 1000
    fifth = len(at) // 5
    first, last = np.median(milliseconds[:fifth]), np.median(milliseconds[-fifth:])
    print(f"memory {late[0, 1]:.0f} to {late[-1, 1]:.0f} MB, {growth:+.2f} MB per 1,000 rounds")
    print(f"median time per round {first:.2f} ms in the first fifth, {last:.2f} ms in the last")
    print(", ".join(f"{name} {bytes_ / 1e6:.2f} MB" for name, bytes_ in sorted(size.items())))
    if growth > 5 or last > 2 * first:
        sys.exit("Memory or time per round grows.")


if __name__ == "__main__":
    main(*sys.argv[1:])
