"""The figures of a report page, as SVG.

The ``id`` of an artist that belongs to a run consists of a kind and the run's key, as in
``round-run3``, so that the page can hide the run in all figures at once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_skew.report import bars, heatmaps, lines, style, training_curves
from fedjax_skew.report.problems import Problem, Run

_WIDTH = 4.6  # Inches of a figure; the text of a wider one would be too small on a phone.
_MOST_POINTS = 150  # Largest number of points of a curve.
_MOST_ROWS = 60  # Largest number of rows of a figure.
_MOST_HISTOGRAMS = 8  # Largest number of histograms in a figure.


class Picture(NamedTuple):
    """A figure of the page: SVG, caption, and one swatch per run if it has a legend."""

    svg: str
    caption: str
    legend: Sequence[tuple[Run, str]] = ()


def pictures(problem: Problem) -> list[Picture]:
    """Returns the figures of a problem: curves, clients by accuracy, partition and classes."""
    looks = style.looks(run.key for run in problem.runs)
    found = [
        _curves(problem, "round", "Test accuracy over rounds", looks),
        _curves(problem, "megabytes", "The same against megabytes sent in both directions", looks),
        _clients(problem, looks),
        _partition(problem),
        _classes(problem),
    ]
    return [picture for picture in found if picture]


def _curves(
    problem: Problem, against: str, words: str, looks: dict[str, style.Look]
) -> Picture | None:
    runs = {f"{against}-{run.key}": [run.record] for run in problem.runs}
    series = {}
    for name, (x, values) in training_curves.series(runs, against).items():
        at = np.unique(np.linspace(0, len(x) - 1, _MOST_POINTS).round().astype(int))
        series[name] = x[at], values[:, at]
    if not series:
        return None
    xlabel, _ = training_curves.AGAINST[against]
    figure = lines.curves(
        {"": series},
        xlabel=xlabel,
        width=_WIDTH,
        legend=False,
        looks={f"{against}-{key}": look for key, look in looks.items()},
    )
    several = any(len(values) > 1 for _, values in series.values())
    caption = words + (
        ": mean over seeds, with a band of one standard deviation." if several else "."
    )
    legend = []
    if against == "round":
        shown = [run for run in problem.runs if f"{against}-{run.key}" in series]
        legend = [(run, style.svg(lines.swatch(looks[run.key]), "")) for run in shown]
    return Picture(style.svg(figure, caption), caption, legend)


def _clients(problem: Problem, looks: dict[str, style.Look]) -> Picture | None:
    runs = [run for run in problem.runs if run.client_accuracy is not None]
    shown = runs[:_MOST_HISTOGRAMS]
    if not shown:
        return None
    values = {f"clients-{run.key}": run.client_accuracy for run in shown}
    worst = {f"clients-{run.key}": run.worst_decile[0] for run in shown if run.worst_decile}
    figure = bars.histogram(
        values,
        xlabel="accuracy on the client's own labels (%)",
        ylabel="clients (%)",
        marks=worst,
        looks={f"clients-{key}": look for key, look in looks.items()},
        width=_WIDTH,
    )
    caption = (
        "Clients by accuracy on test samples of their own label distribution after the last round: "
        "of their own models where a method has them, else of the global model. Marks on the axis "
        "are means of the worst tenth."
    )
    if len(shown) < len(runs):
        caption += f" The {len(shown)} most accurate runs of {len(runs)}."
    return Picture(style.svg(figure, caption), caption)


def _partition(problem: Problem) -> Picture | None:
    for run in problem.runs:
        counts = run.record.class_counts
        if counts is not None:
            caption = "Samples per class and client in the partition"
            caption += f" of seed {run.fields['seed']}." if "seed" in run.fields else "."
            figure = heatmaps.partitions({"": counts}, width=_WIDTH)
            return Picture(style.svg(figure, caption), caption)
    return None


def _classes(problem: Problem) -> Picture | None:
    rows: dict[str, Any] = {}
    for run in problem.runs:
        recall = run.record.lines[-1].get("per_class_accuracy") if run.record.lines else None
        if recall:
            array = np.array(recall, np.float64)  # None becomes nan.
            rows[run.key] = run.name, 100 * array.mean(0)
    width = max((len(values) for _, values in rows.values()), default=0)
    shown = [(name, v) for name, v in rows.values() if len(v) == width][:_MOST_ROWS]
    if not shown:
        return None
    caption = "Test accuracy by class at the last evaluation, mean over seeds."
    figure = heatmaps.grid(
        np.stack([values for _, values in shown]),
        xlabel="class",
        ylabel="",
        label="test accuracy (%)",
        x_names=[str(c) for c in range(width)],
        y_names=[name if len(name) <= 26 else f"{name[:25]}…" for name, _ in shown],
        width=_WIDTH,
    )
    return Picture(style.svg(figure, caption), caption)
