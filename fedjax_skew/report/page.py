"""Any set of runs as one self-contained HTML page.

The page needs no server and loads nothing: drawings are inline, a content security policy forbids
everything else. Names from configurations are escaped. Runs that go on, stopped or failed are shown
with what they have.
"""

import collections
import html
import importlib.resources
import pathlib
import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_skew.config import EXECUTION_FIELDS
from fedjax_skew.metrics import curves
from fedjax_skew.report import names, svg
from fedjax_skew.report.store import Record

_SHOWN = ("method", "dataset.name", "partition", "model", "num_clients", "num_seeds", "rounds")
_PROBLEM = ("dataset.name", "partition", "model", "num_clients")
_COLUMNS = (  # heading, what the first click does
    ("Method", "ascending"),
    ("Status", "ascending"),
    ("Differs in", "ascending"),
    ("Data set", "ascending"),
    ("Partition", "ascending"),
    ("Model", "ascending"),
    ("Clients", "descending"),
    ("Rounds", "descending"),
    ("Seeds", "descending"),
    ("Last", "descending"),
    ("Best", "descending"),
    ("Mean of last 50", "descending"),
    ("Macro-F1", "descending"),
    ("Time (s)", "descending"),
)


class _Run(NamedTuple):
    """A run as the page shows it."""

    key: str
    record: Record
    fields: dict[str, Any]
    differs: str
    score: dict[str, tuple[float, float | None]]

    @property
    def name(self) -> str:
        method = names.method(str(self.fields.get("method", self.record.path.name)))
        return f"{method} ({self.differs})" if self.differs else method


def page(records: Sequence[Record], title: str = "Runs") -> str:
    """The whole page.

    Args:
        records: the runs, for example ``store.find(workdir)``.
        title: heading and window title.
    """
    runs = _runs(records)
    groups: dict[tuple, list[_Run]] = collections.defaultdict(list)
    for run in runs:
        groups[tuple(str(run.fields.get(field, "")) for field in _PROBLEM)].append(run)
    states = collections.Counter(run.record.status for run in runs)
    intro = f"{len(runs)} runs: " + ", ".join(f"{n} {status}" for status, n in states.items())
    intro += (
        ". Accuracies are percent of the test set, mean and standard deviation over seeds; the "
        "best round is chosen on the test set. Click a heading to sort."
    )
    body = [_summary(runs)]
    for place, (problem, members) in enumerate(groups.items()):
        body.append(_group(place, problem, members))
    template = importlib.resources.files("fedjax_skew.report") / "templates" / "page.html"
    return string.Template(template.read_text(encoding="utf-8")).substitute(
        title=html.escape(title), intro=html.escape(intro), body="\n".join(body)
    )


def _runs(records: Sequence[Record]) -> list[_Run]:
    fields = [_fields(record.config) for record in records]
    varying = [
        name
        for name in dict.fromkeys(name for each in fields for name in each)
        if name not in EXECUTION_FIELDS.union(_SHOWN) and not name.startswith("hparams.")
        if len({repr(each.get(name)) for each in fields if each}) > 1
    ]
    runs = []
    for place, (record, each) in enumerate(zip(records, fields, strict=True)):
        words = [f"{n}={_say(each[n])}" for n in varying if n in each]
        words += [
            f"{n.split('.', 2)[2]}={_say(v)}"
            for n, v in each.items()
            if n.startswith("hparams.") and _varies(n, v, each, fields)
        ]
        runs.append(_Run(f"run{place}", record, each, ", ".join(words), _scores(record)))
    return runs


def _varies(name: str, value: Any, mine: Mapping, fields: Sequence[Mapping]) -> bool:
    """Whether another run of the same method has another value."""
    return any(
        other.get("method") == mine.get("method") and other.get(name) != value for other in fields
    )


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted fields; of the hyper-parameters only those of the methods that are used."""
    used = str(config.get("method", "")).split("+")
    flat: dict[str, Any] = {}

    def fill(tree: Mapping[str, Any], prefix: str) -> None:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                if prefix != "hparams." or name in used:
                    fill(value, f"{prefix}{name}.")
            else:
                flat[prefix + name] = value

    fill(config, "")
    return flat


def _scores(record: Record) -> dict[str, tuple[float, float | None]]:
    """Mean and standard deviation of the numbers of the summary table, also of unfinished runs."""
    found = {}
    for column in ("accuracy", "macro_f1"):
        rounds, values = record.curve(column)
        if rounds:
            for which, per_seed in curves.summarize(rounds, 100 * np.array(values)).items():
                found[f"{column} {which}"] = curves.mean_std(per_seed)
    return found


def _summary(runs: Sequence[_Run]) -> str:
    heads = "".join(
        f'<th aria-sort="none" data-first="{first}"><button type="button">{text}</button></th>'
        for text, first in _COLUMNS
    )
    rows = []
    for run in runs:
        record, fields = run.record, run.fields
        total = fields.get("rounds", "")
        seconds = record.lines[-1].get("seconds") if record.lines else None
        cells = [
            f'<td><a href="#{run.key}">{html.escape(run.name.split(" (")[0])}</a></td>',
            f'<td class="status-{record.status}">{record.status}</td>',
            _cell(run.differs),
            _cell(names.dataset(str(fields.get("dataset.name", "")))),
            *(_cell(fields.get(field, "")) for field in ("partition", "model")),
            _cell(fields.get("num_clients", ""), number=True),
            _cell(
                f"{record.rounds_done}" + ("" if record.finished or not total else f" of {total}"),
                number=True,
                value=record.rounds_done,
            ),
            _cell(fields.get("num_seeds", ""), number=True),
        ]
        for key in ("accuracy last", "accuracy best", "accuracy mean_last_50", "macro_f1 last"):
            mean, std = run.score.get(key, (None, None))
            text = "" if mean is None else f"{mean:.2f}" + (f" ± {std:.2f}" if std else "")
            cells.append(_cell(text, number=True, value="" if mean is None else f"{mean:.6f}"))
        cells.append(_cell("" if seconds is None else f"{seconds:.0f}", number=True, value=seconds))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="wide"><table class="sortable" id="summary"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(text: Any, *, number: bool = False, value: Any = None) -> str:
    shown = html.escape(str(text))
    sort = f' data-value="{html.escape(str("" if value is None else value))}"'
    kind = ' class="number"' if number else ""
    return f"<td{kind}{sort if number and value is not None else ''}>{shown}</td>"


def _group(place: int, problem: tuple, runs: Sequence[_Run]) -> str:
    counts = next((c for run in runs if (c := _counts(run.record.path)) is not None), None)
    details = "".join(_details(run, counts) for run in runs)
    if not any(problem):
        return f'<section id="group{place}"><h2>Not started</h2>{details}</section>'
    dataset, partition, model, clients = problem
    words = [names.dataset(dataset), partition, names.model(model), f"{clients} clients"]
    series = [_series(run) for run in runs]
    legend = []
    for index, run in enumerate(runs):
        color, dash = svg.look(index)
        legend.append(
            f'<label><input type="checkbox" checked data-toggles="{run.key}"> '
            f'<svg viewBox="0 0 34 10" aria-hidden="true"><line x1="0" x2="34" y1="5" y2="5" '
            f'stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/></svg> '
            f"{html.escape(run.name)}</label>"
        )
    heat = svg.heatmap(counts) if counts is not None else '<p class="none">No partition saved.</p>'
    drawings = (
        f'<div>{svg.curves(series)}<div class="legend">{"".join(legend)}</div></div>'
        f"<div>{heat}</div>"
    )
    title = html.escape(", ".join(word for word in words if word.strip()))
    return (
        f'<section id="group{place}"><h2>{title}</h2><div class="panels">{drawings}</div>'
        f"{details}</section>"
    )


def _series(run: _Run) -> svg.Series:
    rounds, values = run.record.curve("accuracy")
    array = 100 * np.array(values, np.float64).reshape(len(values), len(rounds))
    mean = array.mean(0) if len(array) else np.zeros(0)
    std = array.std(0, ddof=1) if len(array) > 1 else None
    return svg.Series(run.key, run.name, np.array(rounds), mean, std)


def _details(run: _Run, counts: np.ndarray | None) -> str:
    record = run.record
    parts = [f'<p class="small">{html.escape(str(record.path))}</p>']
    if record.failure and not record.finished:
        parts.append(f'<p class="reason">{html.escape(record.failure)}</p>')
    recall = record.lines[-1].get("per_class_accuracy") if record.lines else None
    if recall:
        array = 100 * np.array([[np.nan if v is None else v for v in seed] for seed in recall])
        std = array.std(0, ddof=1) if len(array) > 1 else None
        sizes = counts.sum(1) if counts is not None and len(counts) == array.shape[1] else None
        parts.append(f"<div>{svg.class_bars(array.mean(0), std, sizes)}</div>")
    facts = dict(run.fields)
    for group in ("versions", "device"):
        facts |= {f"{group}.{k}": v for k, v in record.summary.get(group, {}).items()}
    for name in ("partition_hash", "initial_params_hash", "final_params_hash", "compile_seconds"):
        if name in record.summary:
            facts[name] = record.summary[name]
    rows = "".join(
        f"<tr><td>{html.escape(k)}</td><td>{html.escape(_say(v))}</td></tr>"
        for k, v in facts.items()
    )
    parts.append(f'<table class="facts"><tbody>{rows}</tbody></table>')
    status = record.status
    return (
        f'<details id="{run.key}"><summary>{html.escape(run.name)} '
        f'<span class="status-{status}">{status}</span></summary>{"".join(parts)}</details>'
    )


def _counts(path: pathlib.Path) -> np.ndarray | None:
    """``partition.csv`` as ``[C, K]``, or None; of many clients the first 400."""
    try:
        rows = [line.split(",")[:400] for line in (path / "partition.csv").read_text().splitlines()]
        return np.array(rows, np.int64).reshape(len(rows), -1) if rows else None
    except (OSError, ValueError):
        return None


def _say(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)
