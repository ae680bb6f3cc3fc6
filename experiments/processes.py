"""Runs cells in separate processes, each on its share of the devices.

Each child process runs ``python -m experiments.processes CELL.json``, where the file describes one
cell.
"""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from experiments import app
from experiments.cells import Cell
from experiments.executor import Progress, config_from, fail, pending, run_cell
from fedjax_skew.runs import rundir, store
from fedjax_skew.runs.train import Interrupted

_POLL_SECONDS = 0.5
_COUNT = "import jax; print(jax.default_backend(), jax.local_device_count())"


class Slot(NamedTuple):
    """The share of the machine that one process gets.

    Attributes:
        environment: variables that select its accelerators.
        cores: the CPU cores that it runs on; empty for all of them.
    """

    environment: dict[str, str]
    cores: tuple[int, ...] = ()


def slots(jobs: int) -> list[Slot]:
    """Returns slots for ``jobs`` processes; 0 means one per accelerator, or one per core.

    The devices are counted in a separate process, because a process that initialises an accelerator
    also allocates its memory.
    """
    done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"The devices cannot be counted: {done.stderr.strip().splitlines()[-1]}")
    backend, number = done.stdout.split()[-2:]
    if backend == "gpu":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        ids = visible.split(",") if visible else [str(i) for i in range(int(number))]
        shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if jobs > len(ids) else {}
        groups = _deal(ids, jobs or len(ids))
        return [Slot({"CUDA_VISIBLE_DEVICES": ",".join(group), **shared}) for group in groups]
    if backend == "tpu":
        return [Slot({})]  # Only one process can use the TPU cores of a host.
    cores = sorted(os.sched_getaffinity(0))
    return [Slot({}, tuple(group)) for group in _deal(cores, jobs or len(cores))]


def run_processes(cells: Sequence[Cell], bar: Progress, jobs: int = 0) -> None:
    """Runs cells in as many processes as there are slots."""
    waiting = collections.deque(pending(cells))
    free = slots(jobs)[: max(len(waiting), 1)]
    running: dict[subprocess.Popen, tuple[Cell, Slot]] = {}
    try:
        while waiting or running:
            while waiting and free:
                cell, slot = waiting.popleft(), free.pop()
                running[_start(cell, slot)] = (cell, slot)
            time.sleep(_POLL_SECONDS)
            for process in [p for p in running if p.poll() is not None]:
                cell, slot = running.pop(process)
                free.append(slot)
                bar.done(cell, _outcome(cell, process.returncode))
            bar.running(cell for cell, _ in running.values())
    except BaseException:
        _stop(list(running))
        raise


def main(argv: Sequence[str]) -> int:
    """Runs one cell in a child process and returns the exit code, 130 if it was interrupted."""
    path = pathlib.Path(argv[1])
    app.use_every_core()
    app.cache_programs()
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        config = config_from(json.loads(path.read_text()))
        return 1 if run_cell(config, path.parent, progress=False) else 0
    except Interrupted:
        return app.EXIT_INTERRUPTED


def _start(cell: Cell, slot: Slot) -> subprocess.Popen:
    cell.directory.mkdir(parents=True, exist_ok=True)
    (cell.directory / rundir.FAILURE).unlink(missing_ok=True)
    spec = cell.directory / "cell.json"
    rundir.write_json(spec, cell.config.to_dict())
    with open(cell.directory / "log.txt", "a") as log:
        # The child has its own session, so that Ctrl-C only reaches it through this process.
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.processes", str(spec)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **slot.environment},
        )
    if slot.cores:
        os.sched_setaffinity(process.pid, slot.cores)
    return process


def _outcome(cell: Cell, code: int) -> str:
    if code == 0:
        return ""
    record = store.read(cell.directory)
    if code > 0 and record.failure:
        return record.failure
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
    return fail(cell.directory, f"its process ended with {how}; see {cell.directory / 'log.txt'}")


def _stop(processes: Sequence[subprocess.Popen]) -> None:
    """Asks the child processes to save their runs and waits for them."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait()


def _end_with_parent(parent: int) -> None:
    """Saves the run and ends this process when its parent has died."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _deal(items: Sequence, groups: int) -> list[list]:
    """Splits items into groups of nearly equal size; if there are too few items, groups share."""
    if groups >= len(items):
        return [[items[i % len(items)]] for i in range(groups)]
    return [list(items[i::groups]) for i in range(groups)]


if __name__ == "__main__":
    sys.exit(main(sys.argv))
