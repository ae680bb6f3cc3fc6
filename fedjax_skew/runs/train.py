"""``train_and_evaluate``: a simulation that is kept in a run directory and can be resumed."""

import contextlib
import json
import pathlib
import zlib
from collections.abc import Iterable
from typing import Any

import jax
import ml_collections

from fedjax_skew.config import HOST_FIELDS, flatten
from fedjax_skew.engine.mesh import process_max, raise_together
from fedjax_skew.runs import rundir
from fedjax_skew.runs.loggers import TensorBoard
from fedjax_skew.runs.recorder import DirectoryRecorder
from fedjax_skew.simulation.callbacks import Callback
from fedjax_skew.simulation.columns import plain
from fedjax_skew.simulation.problem import Problem, build
from fedjax_skew.simulation.progress import Progress
from fedjax_skew.simulation.stopping import Diverged, Interrupted, StopSignals
from fedjax_skew.simulation.trainer import Trainer, start


def train_and_evaluate(
    config: ml_collections.ConfigDict,
    workdir: str | pathlib.Path,
    *,
    progress: bool = True,
    callbacks: Iterable[Callback] = (),
    **given: Any,
) -> dict[str, Any]:
    """Runs a configuration to its end, or resumes it from what ``workdir`` holds.

    Args:
        config: see ``fedjax_skew.default_config``.
        workdir: directory of the run; see the README for its files.
        progress: show a progress bar.
        callbacks: called after every evaluation and at the end.
        **given: ``dataset``, ``partition``, ``method``, ``module``, ``optimizer`` and ``params`` in
            place of what the configuration names; see ``fedjax_skew.simulate``.

    Returns:
        The content of ``summary.json``. ``fedjax_skew.load_model(workdir)`` gives the model.

    Raises:
        ValueError: if the configuration, the data or the directory cannot be used.
        Diverged: if a result is not finite and ``on_nonfinite="stop"``.
        Interrupted: on SIGTERM or Ctrl-C, after saving.
    """
    workdir = pathlib.Path(workdir)
    first = jax.process_index() == 0
    with contextlib.ExitStack() as stack:
        with raise_together():
            problem = build(config, **given)
        with raise_together():
            _check_processes(problem)
            if first:
                stack.enter_context(rundir.owned(workdir))
                rundir.check_config(workdir, config.to_dict())
        finished = _finished(workdir, config)
        if finished:
            return finished
        callbacks = list(callbacks)
        if first:
            rundir.write_partition(workdir, problem.partitions[0].class_counts)
            if config.tensorboard:
                callbacks.append(TensorBoard(workdir))
        recorder = DirectoryRecorder(workdir, config.checkpoint_every, config.keep_checkpoints)
        point, history, initial = start(problem, recorder)
        name = problem.phases[0].method.name
        bar = stack.enter_context(Progress(name, config.rounds, point.round, shown=progress))
        signals = stack.enter_context(StopSignals(bar.write, recorder.describe))
        try:
            trainer = Trainer(problem, recorder, signals, bar, callbacks)
            summary = trainer.run(point, history, initial).summary
        except Diverged as error:
            if first:
                failed = {"status": "diverged", "reason": str(error)}
                rundir.write_json(workdir / "summary.json", failed)
            raise
        if first:
            rundir.write_json(workdir / "summary.json", summary)
        return summary


def _check_processes(problem: Problem) -> None:
    """Raises if the processes of a run do not compute the same."""
    fields = flatten(problem.config)
    values = {name: value for name, value in fields.items() if name not in HOST_FIELDS}
    text = json.dumps([plain(values), [p.hash for p in problem.partitions]], sort_keys=True)
    number = zlib.crc32(text.encode()) >> 1
    high, low = process_max(number, -number)
    if high != -low:
        raise ValueError("The processes have different configurations or different data.")


def _finished(workdir: pathlib.Path, config: ml_collections.ConfigDict) -> dict[str, Any] | None:
    path = workdir / "summary.json"
    if not path.exists():
        return None
    found = rundir.read_json(path)
    if found and found.get("status") == "finished" and found.get("rounds") == config.rounds:
        return {**found, "resumed_finished": True}
    return None


__all__ = ["Diverged", "Interrupted", "train_and_evaluate"]
