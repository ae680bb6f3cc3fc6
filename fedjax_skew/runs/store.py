"""Reading of run directories that are finished, running, stopped, failed or damaged.

Nothing is written or locked, so that reports can be generated while runs are training.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

import numpy as np

from fedjax_skew.runs import rundir
from fedjax_skew.simulation import columns

_SKIP = (rundir.CHECKPOINTS, rundir.TENSORBOARD)


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of one run directory.

    Attributes:
        path: the directory.
        config: ``config.json``; empty before the run started.
        summary: ``summary.json``; empty before the run finished.
        failure: the reason of a failure, or empty.
        running: whether a process has locked the directory.
    """

    path: pathlib.Path
    config: dict[str, Any]
    summary: dict[str, Any]
    failure: str
    running: bool

    @property
    def status(self) -> str:
        """``finished``, ``running``, ``failed``, ``stopped`` or ``new``."""
        if self.finished:
            return "finished"
        if self.running:
            return "running"
        if self.failure:
            return "failed"
        return "stopped" if self.rounds_done else "new"

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.summary.get("status") == "finished"

    @functools.cached_property
    def rounds_done(self) -> int:
        """The round of the last evaluation, which is read from the end of the file."""
        return rundir.last_round(self.path)

    @functools.cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl`` up to the first incomplete one."""
        return rundir.read_lines(self.path)

    @functools.cached_property
    def class_counts(self) -> np.ndarray | None:
        """The content of ``partition.csv`` as ``[K, C]``, or None if it is missing or damaged."""
        return rundir.read_partition(self.path)

    @functools.cached_property
    def clients(self) -> dict[str, np.ndarray] | None:
        """The columns of ``clients.csv``, or None if it is missing or damaged."""
        return rundir.read_clients(self.path)

    @property
    def data_hashes(self) -> dict[str, str]:
        """The hashes of the data and of the partition of each seed that the run recorded."""
        seeds, partitions = self.summary.get("seeds", []), self.summary.get("partition_hash", [])
        found = {"data": str(self.summary.get("data_hash", ""))}
        found |= {f"partition of seed {s}": str(h) for s, h in zip(seeds, partitions, strict=False)}
        return {name: value for name, value in found.items() if value}

    def values(self, column: str, which: str) -> tuple[float, ...]:
        """Returns one number per seed of a finished run, for example ``("accuracy", "last")``."""
        per_seed = self.summary.get(column, {}).get(which, {}).get("per_seed", [])
        return tuple(float("nan") if v is None else float(v) for v in per_seed)

    def curve(self, column: str, against: str = "round") -> tuple[list[float], list[list[float]]]:
        """Returns rounds or megabytes ``[T]`` and values ``[S][T]`` of a column.

        Args:
            column: a column of ``metrics.jsonl`` with one value per seed.
            against: ``"round"``, or ``"megabytes"`` for the megabytes sent in both directions so
                far, averaged over seeds; lines without them are omitted.
        """
        lines = [line for line in self.lines if isinstance(line.get(column), list)]
        if against == "megabytes":
            lines = [line for line in lines if columns.megabytes(line)]
            places = [float(np.mean(columns.megabytes(line))) for line in lines]
        else:
            places = [line[against] for line in lines]
        values = [[float("nan") if v is None else v for v in line[column]] for line in lines]
        return places, [list(seed) for seed in zip(*values, strict=True)]

    @property
    def megabytes(self) -> tuple[float, ...]:
        """The megabytes sent in both directions so far, by seed; empty if they are unknown."""
        known = columns.megabytes(self.summary)
        return known or columns.megabytes(self.lines[-1] if self.lines else {})


def read(path: str | os.PathLike[str]) -> Record:
    """Reads one run directory; damaged files are treated as missing."""
    path = pathlib.Path(path)
    summary = rundir.read_json(path / rundir.SUMMARY)
    failure = rundir.read_json(path / rundir.FAILURE).get("reason", "")
    if summary.get("status") == "diverged":
        failure = summary.get("reason", "diverged")
    return Record(
        path=path,
        config=rundir.read_json(path / rundir.CONFIG),
        summary=summary if summary.get("status") == "finished" else {},
        failure=failure,
        running=rundir.is_owned(path),
    )


def find(root: str | os.PathLike[str]) -> list[Record]:
    """Returns all runs below a directory, or the directory itself, sorted by path.

    Raises:
        ValueError: if the directory does not exist or holds no run.
    """
    if not pathlib.Path(root).is_dir():
        raise ValueError(f"workdir={os.fspath(root)!r} is not a directory.")
    found = []
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if name not in _SKIP)
        if rundir.CONFIG in files or rundir.FAILURE in files:
            found.append(read(folder))
            below.clear()
    if not found:
        raise ValueError(
            f"workdir={os.fspath(root)!r} holds no run; a run is a directory with a "
            f"{rundir.CONFIG}."
        )
    return found
