"""The results of a sweep: its points with their runs, and the selection of the best points."""

import dataclasses
from typing import Any

import numpy as np

from experiments.grid import Point
from fedjax_skew.report.problems import SHARED
from fedjax_skew.runs.store import Record

REPORTED = ("last", "best", "mean_last_50")


@dataclasses.dataclass(frozen=True)
class Result:
    """One point of a sweep.

    Attributes:
        point: the method and the values of the swept fields.
        records: its runs: either one, or one per seed.
    """

    point: Point
    records: tuple[Record, ...]

    @property
    def finished(self) -> bool:
        """Whether all of its runs are finished."""
        return all(record.finished for record in self.records)

    @property
    def status(self) -> str:
        """``finished``, or the status of the first unfinished run, with its failure."""
        for record in self.records:
            if not record.finished:
                return f"failed: {record.failure}" if record.failure else record.status
        return "finished"

    @property
    def seconds(self) -> float:
        """The wall time of all its finished runs."""
        return sum(float(r.summary["wall_seconds"]) for r in self.records if r.finished)

    def percent(self, column: str, which: str) -> tuple[float, ...]:
        """Returns an accuracy in percent by seed; empty if the runs do not have it."""
        return tuple(100 * v for record in self.records for v in record.values(column, which))

    def on_own_labels(self, which: str) -> tuple[float, ...]:
        """Returns the accuracy on the clients' label distributions, of personal models if any."""
        own = self.percent("personal_local_accuracy", which)
        return own or self.percent("global_local_accuracy", which)

    @property
    def megabytes(self) -> tuple[float, ...]:
        """The megabytes sent in both directions, by seed."""
        return tuple(v for record in self.records for v in record.megabytes)

    def megabytes_to(self, target: float) -> tuple[float | None, ...]:
        """Returns the megabytes sent until a test accuracy in percent is reached, by seed."""
        found = []
        for record in self.records:
            places, values = record.curve("accuracy", "megabytes")
            for seed in values:
                reached = np.flatnonzero(100 * np.array(seed) >= target)
                found.append(places[reached[0]] if reached.size else None)
        return tuple(found)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """All points of a sweep.

    Attributes:
        fields: the swept fields, with ``method`` first if there are several methods.
        results: the points in the order of the grid.
        reported: ``last``, ``best`` or ``mean_last_50``.
        scattered: whether the points are random, so that few of them share a value.
        target: a test accuracy in percent for which the table shows the megabytes; 0 for none.
    """

    fields: tuple[str, ...]
    results: tuple[Result, ...]
    reported: str = "last"
    scattered: bool = False
    target: float = 0.0

    @property
    def validated(self) -> bool:
        """Whether points are selected by validation accuracy, because all finished ones have it."""
        done = [r for r in self.results if r.finished]
        return bool(done) and all(r.percent("validation_accuracy", "last") for r in done)

    @property
    def kind(self) -> str:
        """What is reported; the best round is selected on the validation set if there is one."""
        at_best = self.reported == "best" and self.validated
        return "at_best_validation" if at_best else self.reported

    def accuracy(self, result: Result) -> tuple[float, ...]:
        """Returns the test accuracy by seed."""
        return result.percent("accuracy", self.kind)

    def validation(self, result: Result) -> tuple[float, ...]:
        """Returns the validation accuracy by seed."""
        return result.percent("validation_accuracy", self.reported)

    def selected(self) -> list[Result]:
        """Returns the best point per method and problem, by mean validation or test accuracy."""
        found: dict[tuple[Any, ...], Result] = {}
        scores: dict[tuple[Any, ...], float] = {}
        for result in self.results:
            values = self.validation(result) if self.validated else self.accuracy(result)
            if not result.finished or np.isnan(values).any():
                continue
            key, score = self.contest(result), float(np.mean(values))
            if key not in found or score > scores[key]:
                found[key], scores[key] = result, score
        return list(found.values())

    def contest(self, result: Result) -> tuple[Any, ...]:
        """Returns what comparable points share: the method, and swept fields of the problem."""
        fields = ("method", *(field for field in self.fields if field in SHARED))
        return tuple(result.point.get(field) for field in fields)

    @property
    def criterion(self) -> str:
        """A description of the selected points."""
        swept = [short(field) for field in self.fields if field in SHARED]
        best = "the best point of a method" + (f" for each {' and '.join(swept)}" if swept else "")
        return f"{best} by mean {'validation' if self.validated else 'test'} accuracy"

    @property
    def contested(self) -> bool:
        """Whether there is anything to select."""
        return len({self.contest(result) for result in self.results}) < len(self.results)


def short(field: str) -> str:
    """Returns a field without the prefix that all hyper-parameters share."""
    return field.removeprefix("hparams.")
