"""The result tables that the papers print.

``configs/<paper>.json`` holds one grid per table: what all cells share, what each column and each
row adds, and the cells as printed (``value±std (gain)``, with trailing zeros). This module expands
the grids into rows. Names and partitions are as stated in the papers, and ``unstated`` marks what a
paper does not say.
"""

import functools
import json
import pathlib
import re
from typing import Any, NamedTuple

from fedjax_skew import errors
from fedjax_skew.report import names
from fedjax_skew.report.result_table import Header

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "configs"
_CELL = re.compile(r"(?P<value>[\d.]+)(?:±(?P<std>[\d.]+))?(?: \((?P<gain>[\d.]+)\))?")
_ASSIGNMENT = re.compile(r"(\w+)=([^,)]+)")
_FIELDS = ("method", "dataset", "model", "partition", "metric", "setting")
_ROMAN = {"1": "I", "2": "II", "3": "III"}


class Row(NamedTuple):
    """One printed number.

    Attributes:
        method: the name of the method; combinations are written as ``fedlc+scaffold``.
        dataset: the dataset.
        model: the network.
        partition: how the data is split, in the notation of the configuration files.
        metric: what the number is (``accuracy``, ``macro_f1``, ``head_acc``, ...).
        value: the number.
        std: its standard deviation, or None if the paper prints none.
        printed: number and standard deviation as printed, such as ``"57.31±0.21"``.
        setting: the recipe that the paper states, as ``key=value;...``.
        extras: further columns of the table, such as ablation switches, ``lambda`` or ``gain``.
        row: key of its row, unique within the table.
        column: key of its column, unique within the table.
    """

    method: str
    dataset: str
    model: str
    partition: str
    metric: str
    value: float
    std: float | None
    printed: str
    setting: str
    extras: dict[str, str]
    row: str
    column: str


def table_names() -> tuple[str, ...]:
    """Returns the names of all tables, ``"<paper>/table<number>"``, in the order of the papers."""
    return tuple(f"{key}/{table}" for key in papers() for table in _data(key)["tables"])


def papers() -> tuple[str, ...]:
    """Returns the keys of all papers, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def load(table: str) -> list[Row]:
    """Returns every number of a table, row by row.

    Args:
        table: one of ``table_names()``.
    """
    grid = _table(table)
    row_keys, column_keys = _keys(grid["rows"], grid), _keys(grid["columns"], grid)
    rows = []
    for row_key, row in zip(row_keys, grid["rows"], strict=True):
        for column_key, column, cell in zip(
            column_keys, grid["columns"], row["cells"], strict=True
        ):
            fields = {**grid["common"], **column, **row}
            parts = _parse(cell)
            extras = {k: v for k, v in fields.items() if k not in (*_FIELDS, "cells")}
            if parts["gain"]:
                extras["gain"] = parts["gain"]
            rows.append(
                Row(
                    **{name: fields[name] for name in _FIELDS},
                    value=float(parts["value"]),
                    std=float(parts["std"]) if parts["std"] else None,
                    printed=cell.partition(" ")[0],
                    extras=extras,
                    row=row_key,
                    column=column_key,
                )
            )
    return rows


def title(table: str) -> str:
    """Returns the title of a table with the paper's numbering, such as ``"FedVLS Table 1"``."""
    paper, _, number = table.partition("/table")
    number = _ROMAN[number] if paper == "fedlc_lt" else number
    return f"{_paper(table)['name']} Table {number}"


def source(paper: str) -> str:
    """Returns the title and the venue of a paper."""
    return _data(paper)["source"]


def caption(table: str) -> str:
    """Returns what a table shows, in one sentence."""
    return _table(table)["caption"]


def reported(table: str) -> str:
    """Returns which number the paper reports, such as ``last``, ``best`` or ``unstated``."""
    return _table(table).get("reported", _paper(table)["reported"])


def footnotes(table: str) -> tuple[str, ...]:
    """Returns known inconsistencies of the paper that affect a table, one sentence each."""
    return (*_table(table)["footnotes"], *_paper(table)["footnotes"])


def row_headers(table: str) -> tuple[Header, ...]:
    """Returns the rows of a table in printed order, with labels.

    The label of an ablation names the switches that are on, as in ``"FedVLS (l_dis, l_logit)"``.
    """
    grid = _table(table)
    headers = []
    for key, row in zip(_keys(grid["rows"], grid), grid["rows"], strict=True):
        switches = {k: v for k, v in row.items() if k not in (*_FIELDS, "cells")}
        if set(switches.values()) <= {"0", "1"}:
            words = [k for k, v in switches.items() if v == "1"] or ["none"]
        else:
            words = [names.assignment(k, v) for k, v in switches.items()]
        method = names.method({**grid["common"], **row}["method"])
        headers.append(Header(key, "", f"{method} ({', '.join(words)})" if switches else method))
    return tuple(headers)


def column_headers(table: str) -> tuple[Header, ...]:
    """Returns the columns of a table in printed order, with labels.

    A label names only what differs between columns: ``longtail(if=100)+dirichlet(alpha=0.5)``
    becomes ``IF=100`` if alpha is the same in all columns.
    """
    grid = _table(table)
    columns = [{**grid["common"], **column} for column in grid["columns"]]
    assignments = [dict(_ASSIGNMENT.findall(column["partition"])) for column in columns]
    grouped = len({column["dataset"] for column in columns}) > 1
    headers = []
    for i, (key, own) in enumerate(zip(_keys(grid["columns"], grid), grid["columns"], strict=True)):
        words = []
        if "model" in own and not grouped:
            words.append(names.model(own["model"]))
        if "partition" in own:
            varying = [
                names.assignment(k, v)
                for k, v in assignments[i].items()
                if any(other.get(k) != v for other in assignments)
            ]
            words += varying or [own["partition"].removeprefix(columns[i]["dataset"])]
        words += [names.assignment(k, v) for k, v in own.items() if k not in _FIELDS]
        if "metric" in own:
            words.append(names.metric(own["metric"]))
        dataset = names.dataset(columns[i]["dataset"])
        metric = columns[i]["metric"]
        if grouped:
            group, label = (dataset, " ".join(words)) if words else ("", dataset)
        else:
            group, label = "", " ".join(words) or names.metric(metric)
        counts_rounds = metric == "rounds_to_target"
        headers.append(Header(key, group, label, not counts_rounds, 0 if counts_rounds else 2))
    return tuple(headers)


def _keys(entries: list[dict[str, Any]], grid: dict[str, Any]) -> list[str]:
    """Returns keys of rows or columns: values of ``_FIELDS``, and other fields as ``key=value``."""
    keys = []
    for entry in entries:
        words = [entry[name] for name in _FIELDS[:-1] if name in entry]
        words += [f"{k}={v}" for k, v in entry.items() if k not in (*_FIELDS, "cells")]
        keys.append(" ".join(words) or grid["common"]["metric"])
    return keys


def _parse(cell: str) -> re.Match[str]:
    parts = _CELL.fullmatch(cell)
    if parts is None:
        raise ValueError(f"cell={cell!r} must read like '57.31±0.21 (18.40)'.")
    return parts


def _table(table: str) -> dict[str, Any]:
    if table not in table_names():
        raise errors.unknown("table", table, table_names())
    key, _, name = table.partition("/")
    return _data(key)["tables"][name]


def _paper(table: str) -> dict[str, Any]:
    _table(table)
    return _data(table.partition("/")[0])


@functools.cache
def _data(key: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{key}.json").read_text(encoding="utf-8"))
