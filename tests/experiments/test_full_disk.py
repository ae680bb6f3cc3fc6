"""A disk that is really full ends a binary with one sentence."""

import contextlib
import os
import subprocess
import sys

import pytest

from experiments import app
from tests.stress.processes import ROOT, TRAIN


@contextlib.contextmanager
def small_disk(path, kilobytes):
    """Mounts a file system with little space; skips the test where that is not allowed."""
    path.mkdir()
    options = f"size={kilobytes}k"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True)
    except OSError:
        pytest.skip("there is no mount")
    if done.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_one_sentence_and_nothing_else_is_said(tmp_path):
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla")}
    with small_disk(tmp_path / "small", 120) as disk:
        done = subprocess.run(
            [sys.executable, "-m", *TRAIN, "--config.loggers=tensorboard", f"--workdir={disk}/run"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
    assert done.returncode == app.EXIT_DISK, done.stderr[-3000:]
    said = [line for line in done.stderr.replace("\r", "\n").splitlines() if "round" not in line]
    assert [line for line in said if line.strip()] == [
        "The disk is full; free some space and run the same command to resume from the newest "
        "checkpoint."
    ]
