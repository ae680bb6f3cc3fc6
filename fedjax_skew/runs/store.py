"""Reads run directories: finished, running, stopped, failed, or damaged.

Nothing here writes or locks, so a report can be made while runs are training.
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
    """What is known about one run.

    Attributes:
        path: its directory.
        config: ``config.json``; empty before the run began.
        summary: ``summary.json``; empty before the run ended.
        failure: why it failed, or empty.
        running: a process holds the directory.
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
        """Whether all its rounds are done."""
        return self.summary.get("status") == "finished"

    @functools.cached_property
    def rounds_done(self) -> int:
        """Rounds up to the last evaluation, from the end of the file: its lines may be long."""
        return rundir.last_round(self.path)

    @functools.cached_property
    def lines(self) -> list[dict[str, Any]]:
        """``metrics.jsonl`` up to the first torn line."""
        return rundir.read_lines(self.path)

    @functools.cached_property
    def class_counts(self) -> np.ndarray | None:
        """``partition.csv`` as ``[K, C]``, or None if it is absent or damaged."""
        return rundir.read_partition(self.path)

    @functools.cached_property
    def clients(self) -> dict[str, np.ndarray] | None:
        """The columns of ``clients.csv``, or None if it is absent or damaged."""
        return rundir.read_clients(self.path)

    @property
    def data_hashes(self) -> dict[str, str]:
        """Hashes that the run recorded: of its data, and of the partition of each seed."""
        seeds, partitions = self.summary.get("seeds", []), self.summary.get("partition_hash", [])
        found = {"data": str(self.summary.get("data_hash", ""))}
        found |= {f"partition of seed {s}": str(h) for s, h in zip(seeds, partitions, strict=False)}
        return {name: value for name, value in found.items() if value}

    def values(self, column: str, which: str) -> tuple[float, ...]:
        """One number per seed, for example ``("accuracy", "last")``, of a finished run."""
        per_seed = self.summary.get(column, {}).get(which, {}).get("per_seed", [])
        return tuple(float("nan") if v is None else float(v) for v in per_seed)

    def curve(self, column: str, against: str = "round") -> tuple[list[float], list[list[float]]]:
        """Rounds or megabytes ``[T]`` and values ``[S][T]`` of a column, so far.

        Args:
            column: a column of ``metrics.jsonl`` with one value per seed.
            against: ``"round"``, or ``"megabytes"`` for those sent in both directions until then,
                mean over seeds; lines of an older run without them are left out.
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
        """Megabytes sent in both directions so far, by seed; nothing if they are not known."""
        known = columns.megabytes(self.summary)
        return known or columns.megabytes(self.lines[-1] if self.lines else {})


def read(path: str | os.PathLike[str]) -> Record:
    """Reads one run directory; what is missing or damaged counts as absent."""
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
    """All runs below a directory (or the directory itself), sorted by path.

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
