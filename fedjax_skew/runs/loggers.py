"""Loggers: callbacks that send the metrics of a run to other programs.

``config.loggers`` contains their names, separated by commas. The package of a logger is imported
only if the logger is used. To add your own logger, pass a ``Callback`` to ``train_and_evaluate`` or
``simulate``.
"""

import csv
import io
import os
import pathlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_skew.config import flatten
from fedjax_skew.errors import import_extra
from fedjax_skew.runs import rundir
from fedjax_skew.simulation.callbacks import Callback, Line

_NOT_SCALARS = ("round", "confusion", "per_class_accuracy")


def make_loggers(names: str, workdir: pathlib.Path, config: Mapping[str, Any]) -> list[Callback]:
    """Builds the loggers of a run.

    Args:
        names: names in ``LOGGERS``, separated by commas, which the configuration has validated.
        workdir: the run directory.
        config: the configuration of the run, for services that display it.
    """
    return [LOGGERS[name](workdir, config) for name in names.split(",") if name]


def scalars(line: Line) -> dict[str, float]:
    """Returns the numeric columns of a line, averaged over seeds."""
    found = {}
    for name, value in line.items():
        if name not in _NOT_SCALARS:
            values = [v for v in (value if isinstance(value, list) else [value]) if v is not None]
            if values:
                found[name] = float(np.mean(values))
    return found


class TensorBoard(Callback):
    """A logger that writes TensorBoard events to ``tensorboard/``."""

    def __init__(self, workdir: pathlib.Path, config: Mapping[str, Any]):
        self._events = import_extra("tensorboardX.event_file_writer", "runs")
        self._summary = import_extra("tensorboardX.proto.summary_pb2", "runs").Summary
        self._directory = workdir / rundir.TENSORBOARD

    def on_start(self, history: Sequence[Line]) -> None:
        """Opens a file; TensorBoard discards older events after the last line of ``history``."""
        self._directory.mkdir(exist_ok=True)
        prefix = str(self._directory / "events")
        self._writer = self._events.EventsWriter(prefix, f".{time.time_ns()}.{os.getpid()}")
        first = history[-1]["round"] + 1 if history else 1
        session = self._events.event_pb2.SessionLog
        self._write(first, session_log=session(status=session.START))

    def on_evaluation(self, line: Line) -> None:
        """Writes one value per column without a thread, so that a full disk raises here."""
        values = [self._summary.Value(tag=k, simple_value=v) for k, v in scalars(line).items()]
        self._write(line["round"], summary=self._summary(value=values))

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def _write(self, step: int, **content: Any) -> None:
        event = self._events.event_pb2.Event(wall_time=time.time(), step=step, **content)
        self._writer.write_event(event)
        self._writer.flush()


class CsvFile(Callback):
    """A logger that writes ``metrics.csv``, with one row per evaluation, averaged over seeds."""

    def __init__(self, workdir: pathlib.Path, config: Mapping[str, Any]):
        self._path = workdir / rundir.METRICS_CSV
        self._rows: list[dict[str, float]] = []

    def on_start(self, history: Sequence[Line]) -> None:
        """Adopts the rows of a resumed run."""
        self._rows = [{"round": line["round"], **scalars(line)} for line in history]

    def on_evaluation(self, line: Line) -> None:
        """Rewrites the file with a new row."""
        self._rows.append({"round": line["round"], **scalars(line)})
        columns = dict.fromkeys(name for row in self._rows for name in row)
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._rows)
        rundir.write_text(self._path, buffer.getvalue())


class WeightsAndBiases(Callback):
    """A logger for Weights & Biases, whose environment variables set project, entity and mode."""

    def __init__(self, workdir: pathlib.Path, config: Mapping[str, Any]):
        self._wandb = import_extra("wandb", "wandb")
        self._workdir, self._config = workdir, config

    def on_start(self, history: Sequence[Line]) -> None:
        """Starts a run, or resumes the one that belongs to the directory."""
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedjax_skew"),
            name=self._workdir.name,
            id=_stored_id(self._workdir, "wandb", lambda: uuid.uuid4().hex[:12]),
            dir=str(self._workdir),
            config=dict(self._config),
            resume="allow",
        )

    def on_evaluation(self, line: Line) -> None:
        """Logs one value per column."""
        self._run.log(scalars(line), step=line["round"])

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Adds the final accuracy to the run's summary."""
        self._run.summary.update(_final(summary))

    def close(self) -> None:
        """Ends the run."""
        self._run.finish()


class MLflow(Callback):
    """A logger for MLflow, configured by MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, workdir: pathlib.Path, config: Mapping[str, Any]):
        self._mlflow = import_extra("mlflow", "mlflow")
        self._workdir, self._config = workdir, config
        self._status = "KILLED"

    def on_start(self, history: Sequence[Line]) -> None:
        """Starts a run, or resumes the one that belongs to the directory."""

        def create() -> str:
            with self._mlflow.start_run(run_name=self._workdir.name) as run:
                fields = {k: str(v) for k, v in flatten(self._config).items()}
                self._mlflow.log_params({k: v for k, v in fields.items() if "hparams." not in k})
            return run.info.run_id

        self._mlflow.start_run(run_id=_stored_id(self._workdir, "mlflow", create))

    def on_evaluation(self, line: Line) -> None:
        """Logs one value per column."""
        self._mlflow.log_metrics(scalars(line), step=line["round"])

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Logs the final accuracy."""
        self._mlflow.log_metrics(_final(summary))
        self._status = "FINISHED"

    def close(self) -> None:
        """Ends the run."""
        self._mlflow.end_run(self._status)


LOGGERS: dict[str, Callable[[pathlib.Path, Mapping[str, Any]], Callback]] = {
    "tensorboard": TensorBoard,
    "csv": CsvFile,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}


def _final(summary: Mapping[str, Any]) -> dict[str, float]:
    """Returns the mean accuracies of a finished run."""
    accuracy = summary["accuracy"]
    kinds = [kind for kind, value in accuracy.items() if value.get("mean") is not None]
    return {f"final_accuracy_{kind}": accuracy[kind]["mean"] for kind in kinds}


def _stored_id(workdir: pathlib.Path, service: str, create: Callable[[], str]) -> str:
    """Returns the id of a directory's run in a service, which is created once."""
    path = workdir / rundir.LOGGERS
    found = rundir.read_json(path)
    if service not in found:
        found[service] = create()
        rundir.write_json(path, found)
    return found[service]
