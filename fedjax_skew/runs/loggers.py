"""Loggers: callbacks that write the metrics of a run for other programs."""

import pathlib
from collections.abc import Sequence

import numpy as np

from fedjax_skew.errors import import_extra
from fedjax_skew.simulation.callbacks import Callback, Line

_NOT_SCALARS = ("round", "confusion", "per_class_accuracy")


def scalars(line: Line) -> dict[str, float]:
    """Returns the columns of a line that are numbers, averaged over seeds."""
    found = {}
    for name, value in line.items():
        if name not in _NOT_SCALARS:
            values = [v for v in (value if isinstance(value, list) else [value]) if v is not None]
            if values:
                found[name] = float(np.mean(values))
    return found


class TensorBoard(Callback):
    """Writes TensorBoard events to ``tensorboard/``."""

    def __init__(self, workdir: pathlib.Path):
        self._writer_type = import_extra("tensorboardX", "runs").SummaryWriter
        self._directory = str(workdir / "tensorboard")

    def on_start(self, history: Sequence[Line]) -> None:
        """Opens the file; events after the last line of ``history`` are forgotten."""
        last = history[-1]["round"] if history else 0
        self._writer = self._writer_type(self._directory, purge_step=last + 1)

    def on_evaluation(self, line: Line) -> None:
        """Writes one event per column."""
        for name, value in scalars(line).items():
            self._writer.add_scalar(name, value, line["round"])

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()
