"""Renders the reports of compiled programs as markdown tables for the documentation."""

import csv
import pathlib
from collections.abc import Callable, Mapping, Sequence

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
REPORTS = RESULTS / "accelerators.csv"
TABLES = RESULTS / "accelerators_tables.csv"

_REPORT_COLUMNS = {
    "target": "device",
    "model": "model",
    "method": "method",
    "conv_impl": "`conv_impl`",
    "clients_per_chunk": "clients per chunk",
    "peak_gb": "memory GB",
    "largest_chunk": "largest chunk",
    "step_launches": "operations per step",
    "round_gflop": "GFLOP per round",
    "round_gb": "GB per round",
    "round_ms": "round ms",
    "samples_per_second": "samples/s",
    "evaluation_ms": "evaluation ms",
    "compile_cpu_s": "compile s",
}
_TABLE_COLUMNS = {
    "table": "table",
    "only": "cells",
    "target": "device",
    "model": "model",
    "peak_gb": "memory GB, FedAvg",
    "largest_gb": "memory GB, most",
    "round_ms": "round ms",
    "run_hours": "hours per run",
    "cells": "runs",
    "table_hours": "hours in total",
}


def reports() -> str:
    """Returns the table of all programs with the settings that are chosen for the device."""
    return _markdown([_shown(row) for row in _chosen()], _REPORT_COLUMNS)


def exchanges() -> str:
    """Returns the table of what is exchanged between devices."""
    rows = [_shown(row) for row in _read(REPORTS) if row["devices"] != "1"]
    columns = ("target", "model", "method", "note", "arguments_gb", "temporaries_gb", "peak_gb")
    names = {name: name.replace("_gb", " GB") for name in (*columns, "collectives")}
    return _markdown(rows, {**names, "round_ms": "round ms"})


def changes() -> str:
    """Returns a comparison of XLA's default convolution with the settings chosen by default."""
    rows = []
    columns = ("peak_gb", "step_launches", "round_gflop", "samples_per_second")
    for before in _read(REPORTS):
        if before["conv_impl"] != "xla":
            continue
        same = ("target", "devices", "model", "method")
        (after,) = [row for row in _chosen() if all(row[key] == before[key] for key in same)]
        pairs = {c: f"{_number(before[c])} → {_number(after[c])}" for c in columns}
        rows.append(before | pairs)
    return _markdown(rows, {c: _REPORT_COLUMNS[c] for c in ("target", "model", *columns)})


def tables() -> str:
    """Returns the memory and time of whole tables of the papers."""
    return _markdown([_shown(row) for row in _read(TABLES)], _TABLE_COLUMNS)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "accelerator_reports": reports,
    "accelerator_exchanges": exchanges,
    "accelerator_changes": changes,
    "accelerator_tables": tables,
}


def _read(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _chosen() -> list[dict[str, str]]:
    """Returns the rows whose convolution and chunk size were both chosen automatically."""
    rows = [row for row in _read(REPORTS) if row["conv_impl"] == "auto" and not row["note"]]
    return [row for row in rows if row["chosen"] == "True"]


def _shown(row: Mapping[str, str]) -> dict[str, str]:
    """Returns a row as it is shown in a table."""
    devices = int(row["devices"])
    shown = dict(row, target=f"{devices} x {row['target']}" if devices > 1 else row["target"])
    if shown.get("largest_chunk") == "0":  # No search was requested.
        shown["largest_chunk"] = "-"
    return {name: _number(value) for name, value in shown.items()}


def _number(text: str) -> str:
    """Formats ``"2.41e+04"`` as ``"24,100"``; other text is returned unchanged."""
    if "e+" not in text:
        return text
    return f"{float(text):,.0f}"


def _markdown(rows: Sequence[Mapping[str, str]], columns: Mapping[str, str]) -> str:
    lines = [f"| {' | '.join(columns.values())} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join(row[name] or '-' for name in columns)} |" for row in rows]
    return "\n".join(lines)
