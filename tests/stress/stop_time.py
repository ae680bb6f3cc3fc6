"""Measures how long a slow run takes to answer SIGTERM: ResNet-8 on images of CIFAR's size.

    python -m tests.stress.stop_time [SECONDS]

The run has no evaluation for 1,000 rounds. It is stopped at several moments, also while it
compiles; ends with an error if an answer takes longer than SECONDS (10), or if a round that the
message calls saved is not on the disk.
"""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from fedjax_skew.runs import checkpoint
from tests.stress.processes import ROOT

FLAGS = {
    "model": "resnet8_w16",
    "dataset.name": "npz",
    "partition": "dirichlet(beta=0.1)",
    "num_clients": 8,
    "rounds": 1000,
    "eval_every": 1000,
    "local_epochs": 0,
    "local_steps": 4,
    "batch_size": 32,
}
MOMENTS = {"starting": 1.0, "compiling": 10.0, "early": 60.0, "later": 120.0}


def stop(workdir: pathlib.Path, data: pathlib.Path, after: float) -> tuple[float, str]:
    """Returns the seconds until a run ended after SIGTERM, and its last line."""
    flags = {**FLAGS, "dataset.path": data}
    command = [sys.executable, "-m", "experiments.train", f"--workdir={workdir}"]
    command += [f"--config.{name}={value}" for name, value in flags.items()]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, **pipes)
    while not (workdir / "partition.csv").exists() and process.poll() is None:
        time.sleep(0.1)
    time.sleep(after)
    began = time.time()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    seconds = time.time() - began
    last = errors.strip().splitlines()[-1]
    assert process.returncode == 130, errors[-3000:]
    return seconds, last


def main(allowed: str = "10") -> None:
    """Stops runs and checks what they say."""
    slow = 0.0
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        rng = np.random.default_rng(0)
        labels = np.arange(5000) % 10
        x = rng.integers(0, 256, (5000, 32, 32, 3), dtype=np.uint8)
        np.savez(base / "data.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
        for name, after in MOMENTS.items():
            seconds, last = stop(base / name, base / "data.npz", after)
            print(f"{name}: ended {seconds:.1f} s after SIGTERM: {last}", flush=True)
            found = re.search(r"round (\d+) is saved", last)
            saved = checkpoint.newest(base / name / "checkpoints")
            assert saved == (int(found[1]) if found else -1), saved
            slow = max(slow, seconds)
    if slow > float(allowed):
        sys.exit(f"An answer took {slow:.1f} s, more than {allowed}.")


if __name__ == "__main__":
    main(*sys.argv[1:])
