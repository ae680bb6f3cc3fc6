"""Cells on a Ray cluster; a lost worker costs nothing but time."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from experiments import cells, executor
from experiments.ray_cells import run_ray

ROOT = pathlib.Path(__file__).parent.parent.parent
# One device: eight simulated ones on few cores wait for each other.
ENVIRONMENT = {**os.environ, "XLA_FLAGS": ""}


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    chosen = cells.plan("fedlc/table4", tmp_path, only="method=fedavg,dataset=femnist")
    bar = executor.Progress(chosen, {cell.run.name: 1.0 for cell in chosen}, shown=False)
    with pytest.raises(ValueError, match=r"pip install 'fedjax_skew\[ray\]'"):
        run_ray(chosen, bar)


@pytest.mark.slow
def test_a_killed_worker_loses_no_cell_and_repeats_none(tmp_path):
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "experiments.reproduce", "--table=fedlc/table4"]
    command += ["--only=method=fedavg,fedprox,partition=synthetic(1,1)", f"--workdir={tmp_path}"]
    command += ["--seeds=1", "--rounds=60", "--executor=ray", "--jobs=2"]
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT)
    while process.poll() is None and not list(tmp_path.glob("cells/fedavg*/metrics.jsonl")):
        time.sleep(0.2)
    (lock,) = tmp_path.glob("cells/fedavg*/.lock")
    worker = int(re.search(r"process (\d+)", lock.read_text())[1])
    os.kill(worker, signal.SIGKILL)
    assert process.wait() == 0
    assert int(re.search(r"process (\d+)", lock.read_text())[1]) != worker
    files = list(tmp_path.glob("cells/*/metrics.jsonl"))
    assert len(files) == 2
    for path in files:
        rounds = [json.loads(line)["round"] for line in path.read_text().splitlines()]
        assert rounds == list(range(10, 61, 10))


@pytest.mark.slow
def test_a_stopped_driver_leaves_runs_that_go_on(tmp_path):
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "experiments.reproduce", "--table=fedlc/table4"]
    command += ["--only=method=fedavg,partition=synthetic(1,1)", f"--workdir={tmp_path}"]
    command += ["--seeds=1", "--rounds=2000", "--executor=ray"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not list(tmp_path.glob("cells/*/metrics.jsonl")):
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert "resumes from there" in process.communicate()[1]
    assert process.returncode == 130
    assert list(tmp_path.glob("cells/*/checkpoints/*"))
    assert not list(tmp_path.glob("cells/*/failure.json"))
