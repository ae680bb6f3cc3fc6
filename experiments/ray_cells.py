"""Runs cells on a Ray cluster (``pip install 'fedjax_skew[ray]'``).

The cluster is the one started by ``ray start`` or named by RAY_ADDRESS, otherwise this machine. All
of its nodes must be able to access the workdir. A cell whose worker is lost resumes on another
worker from its last checkpoint.
"""

import os
import pathlib
import threading
import time
from collections.abc import Sequence
from typing import Any

from experiments import app
from experiments.cells import Cell
from experiments.executor import (
    Progress,
    config_from,
    fail,
    pending,
    run_cell,
    sentence,
    stop_signals,
)
from fedjax_skew.runs import rundir
from fedjax_skew.runs.train import Interrupted

_RETRIES = 10
_ROOT = pathlib.Path(__file__).resolve().parent.parent


def run_ray(cells: Sequence[Cell], bar: Progress, jobs: int = 0) -> None:
    """Runs cells as Ray tasks, each on one GPU or on an equal share of the cores.

    Args:
        cells: the cells to run.
        bar: the progress bar.
        jobs: number of cells at a time on a cluster without GPUs; 0 means one per node.
    """
    try:
        import ray
    except ImportError:
        raise ValueError("executor=ray needs Ray: pip install 'fedjax_skew[ray]'.") from None
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    ray.init(log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    try:
        task = ray.remote(**_resources(ray, jobs))(_remote)
        tasks = {
            task.remote(cell.config.to_dict(), str(cell.directory.resolve())): cell
            for cell in pending(cells)
        }
        stop = threading.Event()
        # Ray installs its own handlers, and its calls cannot be interrupted by exceptions.
        with stop_signals(lambda number, frame: stop.set()):
            _wait(ray, tasks, bar, stop)
    finally:
        ray.shutdown()


def _remote(values: dict[str, Any], directory: str) -> str:
    """Runs one cell on a worker and returns why it failed, or an empty string."""
    app.cache_programs()
    # The process of a lost worker may still be alive for a moment.
    while rundir.is_owned(directory):
        time.sleep(1.0)
    return run_cell(config_from(values), pathlib.Path(directory), progress=False)


def _resources(ray: Any, jobs: int) -> dict[str, Any]:
    total = ray.cluster_resources()
    options: dict[str, Any] = {"max_retries": _RETRIES, "max_calls": 1}
    options["retry_exceptions"] = [Interrupted]
    if total.get("GPU"):
        return {**options, "num_cpus": 1, "num_gpus": 1}
    return {**options, "num_cpus": max(int(total["CPU"]) // (jobs or len(ray.nodes())), 1)}


def _wait(ray: Any, tasks: dict[Any, Cell], bar: Progress, stop: threading.Event) -> None:
    waiting = dict(tasks)
    try:
        while waiting:
            ended, _ = ray.wait(list(waiting), num_returns=1, timeout=1.0)
            if stop.is_set():
                raise Interrupted("Stopped.")
            for reference in ended:
                cell = waiting.pop(reference)
                try:
                    reason = ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = fail(cell.directory, sentence(error))
                bar.done(cell, reason)
            bar.running(cell for cell in waiting.values() if rundir.is_owned(cell.directory))
    except BaseException:
        for reference in waiting:
            ray.cancel(reference)
        # Workers save their runs; Ray ends those that take longer than a minute.
        ray.wait(list(waiting), num_returns=len(waiting), timeout=60.0)
        raise
