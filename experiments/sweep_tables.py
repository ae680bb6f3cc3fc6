"""Writes the tables of a sweep: markdown with one row per point, and CSV with one row per seed."""

import csv
import io
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from experiments import collect
from experiments.cells import machines
from experiments.grid import Point, say
from experiments.sweep_results import REPORTED, Result, Sweep, short
from fedjax_skew.metrics import curves
from fedjax_skew.report import names
from fedjax_skew.report.render import escape_markdown

Scores = Callable[[Result], Sequence[float]]  # percent by seed
Texts = Callable[[Result], str]

_CSV_METRICS = (
    *("accuracy", "macro_f1", "validation_accuracy"),
    *("global_local_accuracy", "personal_local_accuracy"),
)
_CSV_BYTES = ("bytes_down", "bytes_up")


def write(sweep: Sweep, workdir: pathlib.Path, command: str) -> list[pathlib.Path]:
    """Writes ``sweep.md`` and ``sweep.csv`` and returns their paths."""
    texts = {"sweep.md": to_markdown(sweep, command), "sweep.csv": to_csv(sweep)}
    return collect.write_texts(workdir, texts)


def to_markdown(sweep: Sweep, command: str) -> str:
    """Returns a table with one row per point, the selected ones in bold, and an explanation."""
    chosen = sweep.selected()
    columns = _columns(sweep)
    rows = []
    for result in sweep.results:
        cells = [escape_markdown(_shown(result.point, field)) for field in sweep.fields]
        if result.finished:
            cells += [text(result) for _, text in columns]
            if sweep.contested and any(result is c for c in chosen):
                cells = [f"**{cell}**" if cell else cell for cell in cells]
        else:
            cells += [escape_markdown(result.status), *[""] * (len(columns) - 1)]
        rows.append(cells)
    heads = [*map(short, sweep.fields), *(head for head, _ in columns)]
    table = [heads, ["---"] * len(heads), *rows]
    served = sorted(
        {
            f"{names.method(r.point['method'])} trains on {' and '.join(kinds)} server data."
            for r in sweep.results
            for record in r.records
            if (kinds := record.summary.get("server_data"))
        }
    )
    body = "\n".join(f"| {' | '.join(row)} |" for row in table)
    computed = machines(record for r in sweep.results for record in r.records)
    parts = [body, _reading(sweep), *served, *computed, f"Command:\n\n    {command}"]
    return "\n\n".join(parts) + "\n"


def _columns(sweep: Sweep) -> list[tuple[str, Texts]]:
    """Returns the columns after the swept fields: headings, and the text for a finished point."""
    scores: list[tuple[str, Scores]] = [("test accuracy", sweep.accuracy)]
    if any(r.percent("personal_local_accuracy", sweep.reported) for r in sweep.results):
        scores.append(("accuracy on own labels", lambda r: r.on_own_labels(sweep.reported)))
    columns: list[tuple[str, Texts]] = []
    if sweep.validated:
        columns.append(("validation accuracy (%)", _means(sweep.validation)))
    columns += [(f"{head} (%)", _means(of)) for head, of in scores]
    if any(r.megabytes for r in sweep.results):
        columns.append(("megabytes", lambda r: _megabytes(r.megabytes)))
        columns += [(f"{head} per megabyte", _per_megabyte(of)) for head, of in scores]
        if sweep.target:
            head = f"megabytes to {sweep.target:g} %"
            columns.append((head, lambda r: _megabytes(r.megabytes_to(sweep.target))))
    return [*columns, ("seconds", lambda r: f"{r.seconds:.0f}")]


def to_csv(sweep: Sweep) -> str:
    """Returns one row per point and seed, with accuracies as fractions."""
    metrics = [(m, w) for m in _CSV_METRICS for w in REPORTED]
    metrics.append(("accuracy", "at_best_validation"))
    columns = [f"{metric}_{which}" for metric, which in metrics]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        [*sweep.fields, "seed", *columns, *_CSV_BYTES, "seconds", "status", "directory"]
    )
    for result in sweep.results:
        values = [_shown(result.point, field) for field in sweep.fields]
        for record in result.records:
            seeds = record.summary.get("seeds") or [""]
            for place, seed in enumerate(seeds):
                numbers = [_at(record.values(*metric), place) for metric in metrics]
                numbers += [_at(record.summary.get(name, ()), place) for name in _CSV_BYTES]
                seconds = record.summary.get("wall_seconds", "")
                status = f"failed: {record.failure}" if record.failure else record.status
                writer.writerow([*values, seed, *numbers, seconds, status, record.path.name])
    return buffer.getvalue()


def _reading(sweep: Sweep) -> str:
    words = f"Reported: {names.reported(sweep.kind)}; mean ± standard deviation over seeds."
    if any(r.megabytes for r in sweep.results):
        words += " Megabytes are sent per seed between server and clients, in both directions."
    if not sweep.contested:
        return words
    if sweep.validated:
        return f"{words} Bold: {sweep.criterion}."
    return (
        f"{words} Bold: {sweep.criterion}, which is optimistic; with dataset.validation above 0, "
        "points are selected on a part of the training set."
    )


def _shown(point: Point, field: str) -> str:
    return say(point[field]) if field in point else ""


def _means(of: Scores) -> Texts:
    def text(result: Result) -> str:
        values = of(result)
        mean, std = curves.mean_std(values) if values else (0.0, None)
        return "" if not values else f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"

    return text


def _megabytes(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if values and not known:
        return "not reached"
    if len(known) < len(values):
        return f"not reached by {len(values) - len(known)} of {len(values)} seeds"
    return names.megabytes(curves.mean_std(known)[0]) if known else ""


def _per_megabyte(of: Scores) -> Texts:
    def text(result: Result) -> str:
        ratios = [v / sent for v, sent in zip(of(result), result.megabytes, strict=False)]
        return names.megabytes(curves.mean_std(ratios)[0]) if ratios else ""

    return text


def _at(values: Sequence[float], place: int) -> Any:
    return values[place] if place < len(values) else ""
