"""``train_and_evaluate``: a simulation that is stored in a run directory and can be resumed."""

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
from fedjax_skew.runs import identity, rundir
from fedjax_skew.runs.loggers import make_loggers
from fedjax_skew.runs.recorder import DirectoryRecorder
from fedjax_skew.simulation.callbacks import Callback
from fedjax_skew.simulation.columns import plain
from fedjax_skew.simulation.description import describe
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
    """Runs a configuration to its last round, resuming from the newest checkpoint in ``workdir``.

    Args:
        config: the configuration; see ``fedjax_skew.default_config``.
        workdir: directory of the run; ``fedjax_skew.runs.rundir.FILES`` describes its files.
        progress: whether to show a progress bar.
        callbacks: callbacks that are called after every evaluation and at the end.
        **given: ``dataset``, ``partition``, ``method``, ``module``, ``optimizer`` and ``params``
            that replace fields of the configuration; see ``fedjax_skew.simulate``.

    Returns:
        The content of ``summary.json``. Use ``fedjax_skew.load_model(workdir)`` to load the model.

    Raises:
        ValueError: if the configuration, the data or the directory is invalid.
        Diverged: if a result is not finite and ``on_nonfinite="stop"``.
        Interrupted: if the run was stopped by SIGTERM or Ctrl-C.
    """
    workdir = pathlib.Path(workdir)
    first = jax.process_index() == 0
    with contextlib.ExitStack() as stack:
        with raise_together():
            problem = build(config, **given)
        with raise_together():
            found = identity.identity(problem)
            _check_processes(problem, found)
            if first:
                stack.enter_context(rundir.owned(workdir))
                identity.check(workdir, problem, found)
        finished = rundir.read_json(workdir / rundir.SUMMARY)
        if finished.get("status") == "finished" and finished.get("rounds") == config.rounds:
            return {**finished, "resumed_finished": True}
        if first:
            identity.write(workdir, problem, found)
            rundir.write_partition(workdir, problem.partitions[0].class_counts)
            if config.save_partition:
                rundir.write_splits(workdir, problem.seeds, problem.partitions)
            loggers = make_loggers(config.loggers, workdir, describe(problem))
            callbacks = [*callbacks, *loggers]
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
                rundir.write_json(workdir / rundir.SUMMARY, failed)
            raise
        if first:
            rundir.write_json(workdir / rundir.SUMMARY, summary)
        return summary


def _check_processes(problem: Problem, found: dict[str, Any]) -> None:
    """Raises if the processes of a run have different configurations or data."""
    fields = flatten(problem.config).items()
    values = {name: value for name, value in fields if name not in HOST_FIELDS}
    text = json.dumps([plain(values), found], sort_keys=True)
    number = zlib.crc32(text.encode()) >> 1
    high, low = process_max(number, -number)
    if high != -low:
        raise ValueError("The processes have different configurations or different data.")


__all__ = ["Diverged", "Interrupted", "train_and_evaluate"]
