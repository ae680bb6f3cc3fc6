"""One run over several processes on this machine, as the command line starts them."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from fedjax_skew.runs import checkpoint
from fedjax_skew.runs.train import train_and_evaluate

ROOT = pathlib.Path(__file__).parent.parent.parent
FIELDS = {
    "method": "scaffold",
    "dataset__name": "synthetic(1,1)",
    "partition": "natural",
    "rounds": 4,
    "num_seeds": 2,
    "participation": 0.5,
    "eval_every": 2,
}
CONFIG = """import json, pathlib
from experiments.executor import config_from
def get_config():
    return config_from(json.loads(pathlib.Path({path!r}).read_text()))
"""


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


@pytest.fixture
def start(tiny_config, tmp_path):
    """``start(workdir, number, devices)`` starts the processes of a run; all end with the test."""
    started = []

    def start(workdir, number=2, devices=2, each=None, **changes):
        config = tiny_config(**{**FIELDS, "num_devices": 0, **changes})
        file, values = tmp_path / "config.py", tmp_path / "config.json"
        values.write_text(config.to_json())
        file.write_text(CONFIG.format(path=str(values)))
        flags = os.environ["XLA_FLAGS"].replace("device_count=8", f"device_count={devices}")
        environment = {**os.environ, "XLA_FLAGS": flags, "FEDJAX_SKEW_CACHE": str(tmp_path / "c")}
        command = [sys.executable, "-m", "experiments.train", f"--config={file}"]
        command += [f"--workdir={workdir}", f"--coordinator=localhost:{free_port()}"]
        command += [f"--num_processes={number}"]
        processes = [
            subprocess.Popen(
                [*command, f"--process_id={i}", *(each or {}).get(i, [])],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for i in range(number)
        ]
        started.extend(processes)
        return processes

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ends(processes, timeout=300):
    """Exit codes, and what was written to stderr."""
    said = [process.communicate(timeout=timeout)[1] for process in processes]
    return [process.returncode for process in processes], said


def wait_for(path, process):
    while process.poll() is None and not path.exists():
        time.sleep(0.2)


def assert_same(a, b):
    """Equal numbers, but for rounding, times and what padding costs."""
    a, b = ([json.loads(t) for t in (w / "metrics.jsonl").read_text().splitlines()] for w in (a, b))
    for line in [*a, *b]:
        del line["seconds"], line["executed_steps"]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), a, b)


def test_two_processes_go_on_where_one_stopped(start, tiny_config, tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train_and_evaluate(tiny_config(**FIELDS, num_devices=4), whole, progress=False)
    half = tiny_config(**{**FIELDS, "rounds": 2}, num_devices=4)
    train_and_evaluate(half, resumed, progress=False)
    codes, said = ends(start(resumed))
    assert codes == [0, 0], said
    assert_same(whole, resumed)
    assert checkpoint.rounds(resumed / "checkpoints")[0] == 4
    summary = json.loads((resumed / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["device"]["count"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["device", "host"])
def test_a_signal_to_one_process_stops_and_saves_all(start, tiny_config, tmp_path, placement):
    changes = {"state_placement": placement, "dataset__placement": placement, "rounds": 300}
    processes = start(tmp_path / "run", **changes)
    wait_for(tmp_path / "run" / "metrics.jsonl", processes[0])
    processes[1].send_signal(signal.SIGTERM)
    codes, said = ends(processes, timeout=60)
    assert codes == [130, 130], said
    assert all("Stopped by SIGTERM after round" in text for text in said)
    (saved,) = checkpoint.rounds(tmp_path / "run" / "checkpoints")
    rounds = saved // 2 * 2 + 6
    codes, said = ends(start(tmp_path / "run", **{**changes, "rounds": rounds}))
    assert codes == [0, 0], said
    config = tiny_config(**{**FIELDS, "rounds": rounds}, num_devices=4)
    train_and_evaluate(config, tmp_path / "whole", progress=False)
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_the_run_goes_on(start, tmp_path):
    processes = start(tmp_path, rounds=300, checkpoint_every=2)
    wait_for(tmp_path / "checkpoints" / "2.json", processes[0])
    processes[1].kill()
    codes, _ = ends(processes, timeout=200)
    assert codes[0] != 0
    saved = checkpoint.rounds(tmp_path / "checkpoints")[0]
    codes, said = ends(start(tmp_path, rounds=saved + 2))
    assert codes == [0, 0], said


@pytest.mark.slow
def test_what_one_process_refuses_ends_all(start, tmp_path):
    processes = start(tmp_path, each={1: ["--config.client_lr=-1"]})
    codes, said = ends(processes, timeout=60)
    assert codes == [2, 2]
    assert "client_lr=-1.0 is not allowed" in said[1]
    assert "Process 1 failed; its own message says why." in said[0]
    processes = start(tmp_path, each={1: ["--config.client_lr=0.3"]})
    codes, said = ends(processes, timeout=60)
    assert codes == [2, 2]
    assert all("different configurations or different data" in text for text in said)


@pytest.mark.slow
def test_flags_of_processes_go_together(tmp_path):
    command = [sys.executable, "-m", "experiments.train", f"--workdir={tmp_path}"]
    command += ["--coordinator=localhost:1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "num_processes is not set; coordinator, num_processes and process_id" in done.stderr


@pytest.mark.slow
def test_processes_of_slurm_find_each_other(tmp_path):
    command = [sys.executable, "-m", "experiments.train", "--distributed", "--config.rounds=2"]
    names = {"SLURM_JOB_ID": str(free_port()), "SLURM_STEP_NODELIST": "localhost"}
    names |= {"SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2"}
    processes = [
        subprocess.Popen(
            [*command, f"--workdir={tmp_path / 'run'}"],
            cwd=ROOT,
            env={**os.environ, **names, "SLURM_PROCID": i, "SLURM_LOCALID": i},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in ("0", "1")
    ]
    codes, said = ends(processes)
    assert codes == [0, 0], said
    assert json.loads((tmp_path / "run/summary.json").read_text())["device"]["processes"] == 2
