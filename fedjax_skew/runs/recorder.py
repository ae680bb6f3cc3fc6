"""The recorder that stores metrics and checkpoints of a run in its directory."""

import pathlib
import time
from typing import Any

import jax

from fedjax_skew.engine.round import State
from fedjax_skew.runs import checkpoint, rundir
from fedjax_skew.simulation.clients import log_from
from fedjax_skew.simulation.problem import Problem
from fedjax_skew.simulation.state import start_next_phase
from fedjax_skew.simulation.trainer import Line, Point, Recorder, Table, new_log

CHECKPOINT_SECONDS = 60.0
_SLOW_SHARE = 0.05  # Largest share of the time of a slow run that is spent on checkpoints.


class DirectoryRecorder(Recorder):
    """A recorder that stores a run in its directory.

    Args:
        workdir: the run directory.
        every: number of rounds between checkpoints, or 0 for one per ``CHECKPOINT_SECONDS``, and
            more frequent ones if rounds are slow.
        keep: number of checkpoints to keep.
    """

    def __init__(self, workdir: pathlib.Path, every: int, keep: int):
        self._workdir, self._checkpoints = workdir, workdir / rundir.CHECKPOINTS
        self._every, self._keep = every, keep
        self._saved_at, self._save_seconds = time.time(), 0.0

    def restore(self, problem: Problem, state: State) -> tuple[Point, list[Line]]:
        """Returns the newest complete checkpoint, or the initial state."""
        found = checkpoint.restore(self._checkpoints, lambda round_: _like(problem, state, round_))
        point = Point(state, 0, {}, 0.0, new_log(problem))
        if found:
            self.saved = found.round
            saved = found.values
            log = log_from(saved["clients"]) if saved.get("clients") else point.log
            point = Point(found.state, found.round, saved["pending"], saved["seconds"], log)
        first = jax.process_index() == 0
        if found and first:  # A process may have been killed before it deleted old checkpoints.
            checkpoint.tidy(self._checkpoints, found.round, self._keep)
        history = rundir.restore_lines(self._workdir, point.round, repair=first)
        for line in history[:-1]:
            line.pop("confusion", None)
        if history and history[-1]["round"] == point.round:
            # The round was evaluated after the checkpoint, so its line has the pending columns.
            point = point._replace(pending={})
        return point, history

    def clients(self, table: Table) -> None:
        """Writes the table of all clients."""
        if jax.process_index() == 0:
            rundir.write_clients(self._workdir, table)

    def evaluated(self, line: Line) -> None:
        """Appends a line of metrics."""
        if jax.process_index() == 0:
            rundir.append_line(self._workdir, line)

    def due(self, round_: int, slow: bool) -> bool:
        """Returns whether a checkpoint is due, by the rounds or the time since the last one."""
        if not self._every:
            often = self._save_seconds / _SLOW_SHARE if slow else CHECKPOINT_SECONDS
            return time.time() - self._saved_at > min(often, CHECKPOINT_SECONDS)
        return round_ // self._every > (self.saved or 0) // self._every

    def next_due(self, round_: int) -> int:
        """Returns the next multiple of ``every``, independently of earlier interruptions."""
        if not self._every:
            return super().next_due(round_)
        return round_ // self._every * self._every + self._every

    def save(self, point: Point, model: Any) -> None:
        """Writes a checkpoint."""
        began = time.time()
        values: Line = {"pending": point.pending, "seconds": point.seconds}
        values["clients"] = point.log._asdict() if point.log else None
        checkpoint.save(
            self._checkpoints, point.round, point.state, self._keep, model=model, values=values
        )
        self.saved, self._saved_at = point.round, time.time()
        self._save_seconds = self._saved_at - began

    def describe(self) -> str:
        """Returns a sentence that states from where a resumed run would start."""
        if self.saved is None:
            return "nothing was saved, the same command starts again."
        return f"round {self.saved} is saved, the same command resumes from there."


def _like(problem: Problem, state: State, round_: int) -> State:
    """Returns a state with the shapes of a checkpoint of that round, according to its phase."""
    for phase in problem.phases[:-1]:
        if round_ <= phase.last:
            return state
        state = start_next_phase(problem, phase, state)
    return state
