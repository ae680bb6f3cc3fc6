"""Runs cells one after another in this process; shared by all executors.

Every executor produces the same store: a finished cell is a run directory with ``summary.json``,
and a failed cell has the reason in ``failure.json``. The lock of the run directory prevents two
processes from computing the same cell.
"""

import contextlib
import pathlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import ml_collections
import tqdm

from experiments.cells import Cell
from fedjax_skew.config import default_config, flatten
from fedjax_skew.runs import rundir, store
from fedjax_skew.runs.train import Interrupted, train_and_evaluate


def config_from(values: dict[str, Any]) -> ml_collections.ConfigDict:
    """Returns a configuration from the content of a JSON file."""
    config = default_config()
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in flatten(values).items()}
    config.update_from_flattened_dict(fields)
    return config


def run_cell(config: ml_collections.ConfigDict, directory: pathlib.Path, *, progress: bool) -> str:
    """Runs one cell and returns why it failed, or an empty string.

    Raises:
        Interrupted: if the run was asked to stop; it is saved first.
        OSError: if the disk is full, in which case the other cells would fail as well.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        train_and_evaluate(config, directory, progress=progress)
    except (Interrupted, KeyboardInterrupt):
        raise
    except Exception as error:  # A failed cell must not end the others.
        if rundir.disk_is_full(error):
            raise
        return fail(directory, sentence(error))
    (directory / rundir.FAILURE).unlink(missing_ok=True)
    return ""


def fail(directory: pathlib.Path, reason: str) -> str:
    """Records the reason why a cell failed and returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    rundir.write_json(directory / rundir.FAILURE, {"reason": reason})
    return reason


def sentence(error: BaseException) -> str:
    """Returns an error as one line; unexpected errors include the name of their class."""
    text = " ".join(str(error).split())[:500]
    plain = isinstance(error, (ValueError, RuntimeError)) and type(error).__module__ != "jaxlib"
    return text if plain and text else f"{type(error).__name__}: {text}".rstrip(": ")


def pending(cells: Sequence[Cell]) -> list[Cell]:
    """Returns the cells that are neither finished nor running in another process."""
    records = [(cell, cell.record()) for cell in cells]
    return [cell for cell, record in records if record.status not in ("finished", "running")]


def run_here(cells: Sequence[Cell], bar: "Progress") -> None:
    """Runs cells one after another in this process."""
    for cell in pending(cells):
        bar.say(cell.title)
        reason = run_cell(cell.config, cell.directory, progress=bar.shown)
        bar.done(cell, reason)


class Progress:
    """A progress bar over cells, weighted by their estimated work."""

    def __init__(self, cells: Sequence[Cell], weights: dict[str, float], shown: bool = True):
        """Starts a bar over ``cells``; cells without a weight are not going to be run."""
        self.shown, self._weights, self._failed = shown, weights, 0
        self._total, self._text = len(cells), ""
        self._settled, self._first = 0.0, dict[str, int]()
        self._finished = len(cells) - len(weights)
        self._bar = tqdm.tqdm(
            total=max(sum(weights.values()), 1e-9),
            disable=not (shown and weights),
            dynamic_ncols=True,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
        )
        self._describe()

    def done(self, cell: Cell, reason: str) -> None:
        """Records that a cell has ended, with the reason if it failed."""
        self._finished += not reason
        self._failed += bool(reason)
        self._settled += self._weights.get(cell.run.name, 0.0)
        self._move(self._settled)
        self._describe()
        if reason:
            self.write(f"failed: {cell.title}: {reason}")

    def running(self, cells: Iterable[Cell]) -> None:
        """Shows the progress of cells that other processes compute."""
        texts, place = [], self._settled
        for cell in cells:
            name, rounds = cell.run.name, cell.config.rounds
            done = store.read(cell.directory).rounds_done
            first = self._first.setdefault(name, done)  # Earlier rounds are not part of this run.
            place += self._weights.get(name, 0.0) * (done - first) / max(rounds - first, 1)
            texts.append(f"{cell.config.method} {done}/{rounds}")
        self._move(place)
        self.say("; ".join(texts))

    def say(self, text: str) -> None:
        """Shows what is running; if the output is a file, only when it has changed."""
        if text != self._text or sys.stderr.isatty():
            self._text = text
            self._bar.set_postfix_str(text)

    def write(self, text: str) -> None:
        """Prints a line above the bar."""
        self._bar.write(text)

    def close(self) -> None:
        """Removes the bar."""
        self._bar.close()

    def _move(self, place: float) -> None:
        if place > self._bar.n:  # An update by zero would print a line as well.
            self._bar.update(place - self._bar.n)

    def _describe(self) -> None:
        failed = f", {self._failed} failed" if self._failed else ""
        self._bar.set_description_str(f"{self._finished}/{self._total} cells{failed}")


def interrupt(number: int, frame: Any) -> None:
    """Raises ``Interrupted``; a signal handler."""
    raise Interrupted(f"Stopped by {signal.Signals(number).name}.")


@contextlib.contextmanager
def stop_signals(handler: Callable[[int, Any], None] = interrupt) -> Iterator[None]:
    """Sends SIGTERM and Ctrl-C to ``handler``; a run that is training saves a checkpoint first."""
    old = {s: signal.signal(s, handler) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)
