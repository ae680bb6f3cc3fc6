"""A self-contained HTML page about any set of runs.

Runs on the same data, partition and model form a problem with its own table and figures. The page
needs no server and loads nothing: figures are inline, and a content security policy forbids
everything else. Runs that are unfinished, stopped or failed are shown with their available results.
"""

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedjax_skew import errors
from fedjax_skew.report import names
from fedjax_skew.report.page_pictures import pictures
from fedjax_skew.report.problems import Problem, Run, problems
from fedjax_skew.runs.store import Record


class Column(NamedTuple):
    """A column of the tables of runs, which is omitted if no run has a text for it.

    Attributes:
        heading: the heading.
        text: returns the text for a run.
        number: returns the number by which runs are sorted, largest first; None sorts by the text.
        minor: whether the column is hidden on narrow screens.
    """

    heading: str
    text: Callable[[Run], str]
    number: Callable[[Run], float | None] | None = None
    minor: bool = True


def _percent(
    heading: str, score: Callable[[Run], tuple[float, float | None] | None], minor: bool = True
) -> Column:
    """Returns a column of means and standard deviations over seeds in percent."""

    def number(run: Run) -> float | None:
        return (score(run) or (None, None))[0]

    def text(run: Run) -> str:
        mean, std = score(run) or (None, None)
        return "" if mean is None else f"{mean:.2f}" + (f" ± {std:.2f}" if std else "")

    return Column(heading, text, number, minor)


def _score(heading: str, column: str, which: str, minor: bool = True) -> Column:
    """Returns such a column for a column of ``metrics.jsonl``."""
    return _percent(heading, lambda run: run.score(column, which), minor)


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
    _percent("Worst decile", lambda run: run.worst_decile),
    Column("Megabytes", lambda run: _megabytes(run), lambda run: run.megabytes, minor=False),
    Column("Rounds", lambda run: str(run.record.rounds_done), lambda run: run.record.rounds_done),
    Column(
        "Seeds", lambda run: str(run.fields.get("num_seeds", "")), lambda run: len(run.curve[1])
    ),
    Column("Time", lambda run: _duration(run.seconds), lambda run: run.seconds),
    Column("Directory", lambda run: run.directory),
)


def page(records: Sequence[Record], title: str = "Runs") -> str:
    """Returns the whole page.

    Args:
        records: the runs, for example ``store.find(workdir)``.
        title: heading and title of the window.
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
        pictures=pictures,
        facts=_facts,
        progress=_progress,
    )


def _states(records: Sequence[Record]) -> str:
    """Returns a text such as ``"8 runs: 5 finished, 3 running"``."""
    states = collections.Counter(record.status for record in records)
    count = f"{len(records)} run{'s' if len(records) != 1 else ''}"
    return f"{count}: " + ", ".join(f"{n} {status}" for status, n in states.items())


def _columns(problem: Problem) -> list[Column]:
    return [column for column in COLUMNS if any(map(column.text, problem.runs))]


def _status(run: Run) -> str:
    """Returns the status of a run, with its progress if it is running."""
    record, total = run.record, int(run.fields.get("rounds", 0))
    if record.status != "running" or not total:
        return record.status
    words = [f"running, {record.rounds_done} of {total}"]
    if record.rounds_done and run.seconds:
        left = run.seconds / record.rounds_done * (total - record.rounds_done)
        words.append(f"about {_duration(left)} left")
    return ", ".join(words)


def _progress(problem: Problem) -> float:
    """Returns the share of a problem's rounds that are done."""
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


def _megabytes(run: Run) -> str:
    return "" if run.megabytes is None else names.megabytes(run.megabytes)


def _facts(run: Run) -> dict[str, str]:
    """Returns the fields of a run, and its versions, device and hashes."""
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
