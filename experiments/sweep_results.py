"""The results of a sweep: the selected points, a table, a CSV file by seed, and pictures."""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.grid import Point, say
from fedjax_skew.metrics import curves
from fedjax_skew.report import bars, heatmaps, lines, names, style
from fedjax_skew.report.render import escape_markdown
from fedjax_skew.runs import rundir
from fedjax_skew.runs.store import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPORTED = ("last", "best", "mean_last_50")
_CSV_METRICS = ("accuracy", "macro_f1", "validation_accuracy")
_LOG_RATIO = 10  # between the largest and the smallest value of a field on a logarithmic axis


@dataclasses.dataclass(frozen=True)
class Result:
    """One point of a sweep.

    Attributes:
        point: values of the swept fields, and the method.
        records: its runs: one, or one per seed.
    """

    point: Point
    records: tuple[Record, ...]

    @property
    def finished(self) -> bool:
        """Whether all its seeds are done."""
        return all(record.finished for record in self.records)

    @property
    def status(self) -> str:
        """``finished``, or how the first run that is not finished stands, with its failure."""
        for record in self.records:
            if not record.finished:
                return f"failed: {record.failure}" if record.failure else record.status
        return "finished"

    @property
    def seconds(self) -> float:
        """Wall time of all its runs."""
        return sum(float(r.summary["wall_seconds"]) for r in self.records if r.finished)

    def percent(self, column: str, which: str) -> tuple[float, ...]:
        """An accuracy in percent by seed, or nothing where the runs do not have it."""
        return tuple(100 * v for record in self.records for v in record.values(column, which))


@dataclasses.dataclass(frozen=True)
class Sweep:
    """All points of a sweep.

    Attributes:
        fields: the swept fields, ``method`` first if there are several.
        results: in the order of the grid.
        reported: ``last``, ``best`` or ``mean_last_50``.
        scattered: whether the points are random, so that few share a value.
    """

    fields: tuple[str, ...]
    results: tuple[Result, ...]
    reported: str = "last"
    scattered: bool = False

    @property
    def validated(self) -> bool:
        """Whether every finished point has a validation accuracy, on which points are selected."""
        done = [r for r in self.results if r.finished]
        return bool(done) and all(r.percent("validation_accuracy", "last") for r in done)

    def accuracy(self, result: Result) -> tuple[float, ...]:
        """Test accuracy by seed; the best round is chosen on the validation set if there is one."""
        at_best = self.reported == "best" and self.validated
        return result.percent("accuracy", "at_best_validation" if at_best else self.reported)

    def selected(self) -> dict[str, Result]:
        """The best point of every method, by mean validation or else test accuracy."""
        found: dict[str, Result] = {}
        scores: dict[str, float] = {}
        for result in self.results:
            values = self.accuracy(result)
            if self.validated:
                values = result.percent("validation_accuracy", self.reported)
            if not result.finished or np.isnan(values).any():
                continue
            method, score = result.point["method"], float(np.mean(values))
            if method not in found or score > scores[method]:
                found[method], scores[method] = result, score
        return found


def write(sweep: Sweep, workdir: pathlib.Path, command: str) -> tuple[str, list[str]]:
    """Writes table, CSV and pictures; returns the table and the paths of all files."""
    workdir.mkdir(parents=True, exist_ok=True)
    text = to_markdown(sweep, command)
    rundir.write_text(workdir / "sweep.md", text)
    rundir.write_text(workdir / "sweep.csv", to_csv(sweep))
    files = [workdir / "sweep.md", workdir / "sweep.csv"]
    for name, figure in draw(sweep).items():
        files += style.save(figure, workdir / name)
    return text, [str(path) for path in files]


def to_markdown(sweep: Sweep, command: str) -> str:
    """One row per point, the selected ones in bold, and how to read them."""
    chosen = list(sweep.selected().values())
    contest = len(sweep.results) > len({r.point["method"] for r in sweep.results})
    heads = [short(field) for field in sweep.fields]
    heads += ["validation accuracy (%)"] * sweep.validated + ["test accuracy (%)", "seconds"]
    rows = []
    for result in sweep.results:
        cells = [escape_markdown(_shown(result.point, field)) for field in sweep.fields]
        if result.finished:
            if sweep.validated:
                cells.append(_mean(result.percent("validation_accuracy", sweep.reported)))
            cells += [_mean(sweep.accuracy(result)), f"{result.seconds:.0f}"]
            if contest and any(result is c for c in chosen):
                cells = [f"**{cell}**" if cell else cell for cell in cells]
        else:
            cells += [""] * sweep.validated + [escape_markdown(result.status), ""]
        rows.append(cells)
    table = [heads, ["---"] * len(heads), *rows]
    notes = [_reading(sweep, contest)]
    served = sorted(
        {
            f"{names.method(r.point['method'])} trains on {' and '.join(kinds)} server data."
            for r in sweep.results
            for record in r.records
            if (kinds := record.summary.get("server_data"))
        }
    )
    body = "\n".join(f"| {' | '.join(row)} |" for row in table)
    return "\n\n".join([body, *notes, *served, f"Command:\n\n    {command}"]) + "\n"


def to_csv(sweep: Sweep) -> str:
    """One row per point and seed, accuracies as fractions."""
    columns = [f"{m}_{w}" for m in _CSV_METRICS for w in REPORTED]
    columns.append("accuracy_at_best_validation")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*sweep.fields, "seed", *columns, "seconds", "status", "directory"])
    for result in sweep.results:
        values = [_shown(result.point, field) for field in sweep.fields]
        for record in result.records:
            seeds = record.summary.get("seeds") or [""]
            for place, seed in enumerate(seeds):
                numbers = [_at(record.values(*_metric(column)), place) for column in columns]
                seconds = record.summary.get("wall_seconds", "")
                status = f"failed: {record.failure}" if record.failure else record.status
                writer.writerow([*values, seed, *numbers, seconds, status, record.path.name])
    return buffer.getvalue()


def draw(sweep: Sweep) -> dict[str, "Figure"]:
    """Pictures by name: bars of methods, lines of one field, heat maps of two, points of more."""
    done = [r for r in sweep.results if r.finished]
    fields = [field for field in sweep.fields if field != "method"]
    methods = list(dict.fromkeys(r.point["method"] for r in done))
    if not done:
        return {}
    ylabel = f"test accuracy (%), {names.reported_briefly(sweep.reported)}"
    if not fields:
        labels = [names.method(m) for m in methods]
        return {"sweep": bars.grouped_bars(labels, {"": _stack(sweep, done)}, ylabel=ylabel)}
    numeric = all(isinstance(r.point.get(f, 0), int | float) for r in done for f in fields)
    if numeric and (len(fields) == 1 or sweep.scattered or len(fields) > 2):
        panels = {short(f): _series(sweep, done, f) for f in fields}
        joined = len(fields) == 1 and not sweep.scattered
        log = all(_is_log(done, field) for field in fields)
        return {"sweep": lines.sensitivity(panels, ylabel=ylabel, log=log, joined=joined)}
    if len(fields) > 2 or sweep.scattered:
        return {}
    if len(fields) == 1:
        return {"sweep": _heat_map(sweep, done, "method", fields[0], ylabel)}
    found = {}
    for method in methods:
        own = [r for r in done if r.point["method"] == method]
        if all(field in own[0].point for field in fields):
            name = "sweep" if len(methods) == 1 else f"sweep_{method}"
            found[name] = _heat_map(sweep, own, fields[0], fields[1], ylabel)
    return found


def short(field: str) -> str:
    """A field without the words that all hyper-parameters share."""
    return field.removeprefix("hparams.")


def _series(sweep: Sweep, results: Sequence[Result], field: str) -> dict[str, tuple[Any, Any]]:
    """By method, values of a field and accuracies; a method without it is the same everywhere."""
    everywhere = sorted({r.point[field] for r in results if field in r.point})
    found = {}
    for method in dict.fromkeys(r.point["method"] for r in results):
        own = [r for r in results if r.point["method"] == method]
        if field in own[0].point:
            own.sort(key=lambda r: r.point[field])
            x = [r.point[field] for r in own]
        elif len(own) == 1:
            x, own = everywhere, own * len(everywhere)
        else:
            continue
        found[names.method(method)] = (x, _stack(sweep, own))
    return found


def _heat_map(sweep: Sweep, results: Sequence[Result], row: str, column: str, label: str):
    rows, columns = (list(dict.fromkeys(r.point[f] for r in results)) for f in (row, column))
    values = np.full((len(rows), len(columns)), np.nan)
    for result in results:
        place = rows.index(result.point[row]), columns.index(result.point[column])
        values[place] = np.mean(sweep.accuracy(result))
    title = "" if row == "method" else names.method(results[0].point["method"])
    return heatmaps.grid(
        values,
        xlabel=short(column),
        ylabel=short(row),
        label=label,
        x_names=[say(v) for v in columns],
        y_names=[names.method(v) if row == "method" else say(v) for v in rows],
        limits=(float(np.nanmin(values)), float(np.nanmax(values))),
        decimals=1,
        title=title,
        width=float(np.clip(0.55 * len(columns) + 2.2, 3.4, style.WIDTH)),
    )


def _stack(sweep: Sweep, results: Sequence[Result]) -> np.ndarray:
    """Accuracies ``[X, S]``; seeds that a point lacks are nan."""
    values = [sweep.accuracy(r) for r in results]
    width = max(map(len, values))
    return np.array([(*v, *[np.nan] * (width - len(v))) for v in values])


def _is_log(results: Sequence[Result], field: str) -> bool:
    values = [r.point[field] for r in results if field in r.point]
    return min(values) > 0 and max(values) >= _LOG_RATIO * min(values)


def _reading(sweep: Sweep, contest: bool) -> str:
    kind = names.reported(sweep.reported)
    if sweep.reported == "best" and sweep.validated:
        kind = "test accuracy of the round with the best validation accuracy"
    words = f"Reported: {kind}; mean ± standard deviation over seeds."
    if not contest:
        return words
    if sweep.validated:
        return f"{words} Bold: the best point of a method by mean validation accuracy."
    return (
        f"{words} Bold: the best point of a method on the test set itself, which flatters it; with "
        "dataset.validation above 0, points are selected on a part of the training set."
    )


def _shown(point: Point, field: str) -> str:
    return say(point[field]) if field in point else ""


def _mean(values: Sequence[float]) -> str:
    mean, std = curves.mean_std(values)
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _metric(column: str) -> tuple[str, str]:
    """``"accuracy_last"`` as column and kind of the summary."""
    metric = next(m for m in sorted(_CSV_METRICS, key=len, reverse=True) if column.startswith(m))
    return metric, column.removeprefix(f"{metric}_")


def _at(values: Sequence[float], place: int) -> Any:
    return values[place] if place < len(values) else ""
