"""Any set of runs as one self-contained HTML page.

Runs on the same data, partition and model form a problem with its own table and figures. The page
needs no server and loads nothing: figures are inline, and a content security policy forbids
everything else. Runs that are still running, were stopped or failed are shown with what they have.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_skew import errors
from fedjax_skew.report import heatmaps, lines, names, style
from fedjax_skew.report.problems import Problem, Run, problems
from fedjax_skew.runs.store import Record

_WIDTH = 4.6  # inches of a figure; more would make its text too small on a telephone
_MOST_POINTS = 150  # of a curve
_MOST_ROWS = 60  # of a figure


class Column(NamedTuple):
    """A column of the tables of runs; it is left out where no run has a text for it.

    Attributes:
        heading: its heading.
        text: what it says of a run.
        number: what it is sorted by, largest first; None sorts by the text.
        minor: whether narrow screens leave it out.
    """

    heading: str
    text: Callable[[Run], str]
    number: Callable[[Run], float | None] | None = None
    minor: bool = True


def _score(heading: str, column: str, which: str, minor: bool = True) -> Column:
    """Mean and standard deviation over seeds of a column of ``metrics.jsonl``, in percent."""

    def number(run: Run) -> float | None:
        return (run.score(column, which) or (None, None))[0]

    def text(run: Run) -> str:
        mean, std = run.score(column, which) or (None, None)
        return "" if mean is None else f"{mean:.2f}" + (f" ± {std:.2f}" if std else "")

    return Column(heading, text, number, minor)


# One entry per column of the page's tables.
COLUMNS = (
    Column("Method", lambda run: run.method, minor=False),
    Column("Differs in", lambda run: run.differs, minor=False),
    Column("Status", lambda run: _status(run), minor=False),
    _score("Last", "accuracy", "last", minor=False),
    _score("Best", "accuracy", "best"),
    _score("Mean of last 50", "accuracy", "mean_last_50"),
    _score("Macro-F1", "macro_f1", "last"),
    _score("Validation", "validation_accuracy", "last"),
    _score("Own models", "personal_local_accuracy", "last"),
    Column("Rounds", lambda run: str(run.record.rounds_done), lambda run: run.record.rounds_done),
    Column(
        "Seeds", lambda run: str(run.fields.get("num_seeds", "")), lambda run: len(run.curve[1])
    ),
    Column("Time", lambda run: _duration(run.seconds), lambda run: run.seconds),
    Column("Directory", lambda run: run.directory),
)


class Picture(NamedTuple):
    """A figure of the page: SVG, what it shows, and a swatch per run if it has a legend."""

    svg: str
    caption: str
    legend: Sequence[tuple[Run, str]] = ()


def page(records: Sequence[Record], title: str = "Runs") -> str:
    """The whole page.

    Args:
        records: the runs, for example ``store.find(workdir)``.
        title: heading and window title.
    """
    jinja2 = errors.import_extra("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedjax_skew.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = problems(records)
    return environment.get_template("page.html").render(
        title=title,
        problems=found,
        states=_states(records),
        columns=_columns,
        pictures=_pictures,
        facts=_facts,
        progress=_progress,
    )


def _states(records: Sequence[Record]) -> str:
    """``"8 runs: 5 finished, 3 running"``."""
    states = collections.Counter(record.status for record in records)
    count = f"{len(records)} run{'s' if len(records) != 1 else ''}"
    return f"{count}: " + ", ".join(f"{n} {status}" for status, n in states.items())


def _columns(problem: Problem) -> list[Column]:
    return [column for column in COLUMNS if any(map(column.text, problem.runs))]


def _status(run: Run) -> str:
    """The status, and of a running one how far it is."""
    record, total = run.record, int(run.fields.get("rounds", 0))
    if record.status != "running" or not total:
        return record.status
    words = [f"running, {record.rounds_done} of {total}"]
    if record.rounds_done and run.seconds:
        left = run.seconds / record.rounds_done * (total - record.rounds_done)
        words.append(f"about {_duration(left)} left")
    return ", ".join(words)


def _progress(problem: Problem) -> float:
    """The share of a problem's rounds that are done."""
    done = total = 0
    for run in problem.runs:
        rounds = max(int(run.fields.get("rounds", 0)), 1)
        done, total = done + min(run.record.rounds_done, rounds), total + rounds
    return done / total


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _facts(run: Run) -> dict[str, str]:
    """What is known about a run beyond its numbers."""
    facts = dict(run.fields)
    for name in ("versions", "device"):
        facts |= {f"{name}.{k}": v for k, v in run.record.summary.get(name, {}).items()}
    for name in (
        "data_hash",
        "partition_hash",
        "initial_params_hash",
        "final_params_hash",
        "compile_seconds",
    ):
        if name in run.record.summary:
            facts[name] = run.record.summary[name]
    return {name: names.value(value) for name, value in facts.items()}


def _pictures(problem: Problem) -> list[Picture]:
    """The figures of a problem: curves, the partition, and accuracies by class."""
    found = [_curves(problem), _partition(problem), _classes(problem)]
    return [picture for picture in found if picture]


def _curves(problem: Problem) -> Picture | None:
    series = {}
    for run in problem.runs:
        rounds, values = run.curve
        if len(rounds):
            at = np.unique(np.linspace(0, len(rounds) - 1, _MOST_POINTS).round().astype(int))
            series[f"curve-{run.key}"] = rounds[at], values[:, at]
    if not series:
        return None
    looks = style.looks(series)
    legend = [
        (run, style.svg(lines.swatch(looks[f"curve-{run.key}"]), ""))
        for run in problem.runs
        if f"curve-{run.key}" in series
    ]
    several = any(len(values) > 1 for _, values in series.values())
    caption = "Test accuracy over rounds" + (
        ": mean over seeds, with a band of one standard deviation." if several else "."
    )
    figure = lines.curves({"": series}, width=_WIDTH, legend=False)
    return Picture(style.svg(figure, caption), caption, legend)


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
