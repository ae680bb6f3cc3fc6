"""Builds a paper's table from measured cells, and cells from run directories."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from experiments import printed
from experiments.printed import Row
from fedjax_skew.metrics import curves
from fedjax_skew.report import names, render
from fedjax_skew.report.result_table import Cell, Header, Table
from fedjax_skew.runs.store import Record

Measured = Callable[[Row], tuple[str, str]]


class Entry(NamedTuple):
    """A run, and the printed numbers that it answers."""

    rows: tuple[Row, ...]
    record: Record


def cells(entries: Iterable[Entry], measured: Measured) -> dict[tuple[str, str], Cell]:
    """Returns the measured cells by row and column; a run that is not finished gives an empty cell.

    Args:
        entries: the runs; several runs of one cell are its seeds.
        measured: maps a printed number to ``(column, which)``, where ``which`` is ``last``,
            ``best``, ``mean_last_50`` or ``rounds_to_target``.
    """
    entries = list(entries)
    found: dict[tuple[str, str], Cell] = {}
    for entry in entries:
        for row in entry.rows:
            column, which = measured(row)
            if not entry.record.finished:
                cell = Cell(failure=entry.record.failure)
            elif which == "rounds_to_target":
                cell = _rounds_to_target(row, entry, entries)
            else:
                # Accuracies and F1 scores are printed in percent.
                values = entry.record.values(column, which)
                cell = Cell(values=tuple(100 * v for v in values))
                if not values:
                    cell = Cell(failure=f"the run has no {column}")
            if entry.record.finished:
                cell = dataclasses.replace(cell, megabytes=entry.record.megabytes)
            key = row.row, row.column
            found[key] = _join(found[key], cell) if key in found else cell
    return found


def _join(one: Cell, other: Cell) -> Cell:
    """Returns a cell with the seeds of both."""
    return Cell(
        values=one.values + other.values,
        failure=one.failure or other.failure,
        notes=tuple(dict.fromkeys(one.notes + other.notes)),
        megabytes=one.megabytes + other.megabytes,
    )


def table(
    name: str,
    found: Mapping[tuple[str, str], Cell],
    *,
    reported: str,
    pool: Collection[str] = (),
    row_marks: Mapping[str, tuple[str, ...]] | None = None,
    scaled: tuple[str, ...] = (),
    footnotes: tuple[str, ...] = (),
) -> Table:
    """Returns a paper's table with measured cells; columns that the paper lacks come last.

    Args:
        name: one of ``printed.table_names()``.
        found: the measured cells by row and column.
        reported: which number of a run is shown, such as ``last``.
        pool: columns that show the accuracy on the training pool.
        row_marks: remarks about whole rows, by row key.
        scaled: sentences about what is smaller than in the paper.
        footnotes: sentences that precede the known inconsistencies of the paper.
    """
    known = {(row.row, row.column): row for row in printed.load(name)}
    shown = {row for row, _ in found}, {column for _, column in found}
    rows = tuple(row for row in printed.row_headers(name) if row.key in shown[0])
    columns = [
        c._replace(label=f"{c.label} (training pool)") if c.key in pool else c
        for c in printed.column_headers(name)
        if c.key in shown[1]
    ]
    present = {column.key for column in columns}
    for key in dict.fromkeys(column for _, column in found if column not in present):
        words = f"{'training pool, ' if key in pool else ''}not in the paper"
        columns.append(Header(key, "", f"{names.dataset(key)} ({words})"))
    every = ((row.key, column.key) for row in rows for column in columns)
    return Table(
        title=printed.title(name),
        rows=rows,
        columns=tuple(columns),
        cells={key: beside(found.get(key, Cell()), known.get(key)) for key in every},
        caption=printed.caption(name),
        reported=reported,
        paper_reported=printed.reported(name),
        row_marks=row_marks or {},
        scaled=scaled,
        footnotes=(*footnotes, *printed.footnotes(name)),
    )


def beside(cell: Cell, row: Row | None) -> Cell:
    """Returns a measured cell with the paper's number, if there is one."""
    return dataclasses.replace(cell, paper=row.value, paper_std=row.std) if row else cell


def held_out(made: Table, entries: Sequence[Entry], measured: Measured) -> Table | None:
    """Returns a table of test accuracies for the columns that show the training pool, or None."""
    of_pool = [
        Entry(kept, entry.record)
        for entry in entries
        if (kept := tuple(r for r in entry.rows if measured(r)[0] == "train_accuracy"))
    ]
    if not of_pool:
        return None
    found = cells(of_pool, lambda row: ("accuracy", measured(row)[1]))
    return dataclasses.replace(
        made,
        title=f"{made.title}, held-out test set",
        columns=tuple(
            c._replace(label=c.label.replace(" (training pool)", "").replace("training pool, ", ""))
            for c in made.columns
            if any(key[1] == c.key for key in found)
        ),
        rows=tuple(r for r in made.rows if any(key[0] == r.key for key in found)),
        cells=found,
        caption="Accuracy of the same runs on the test set.",
        paper_reported="",
        row_marks={},
        footnotes=("The paper prints no numbers for it.",),
    )


def write(
    made: Sequence[Table], workdir: str | os.PathLike[str], command: str = "", stem: str = "table"
) -> str:
    """Writes ``<stem>.md``, ``<stem>.csv`` and ``<stem>.tex`` and returns the markdown."""
    folder = pathlib.Path(workdir)
    markdown = "\n".join(render.to_markdown(table) for table in made)
    if command:
        markdown += f"\nCommand:\n\n    {command}\n"
    csv = [render.to_csv(table) for table in made]
    csv[1:] = [text.partition("\n")[2] for text in csv[1:]]
    latex = "\n".join(render.to_latex(table) for table in made)
    texts = {"md": markdown, "csv": "".join(csv), "tex": latex}
    write_texts(folder, {f"{stem}.{suffix}": text for suffix, text in texts.items()})
    return markdown


def write_texts(folder: pathlib.Path, texts: Mapping[str, str]) -> list[pathlib.Path]:
    """Writes files by name into a folder that processes may share, and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        temporary = folder / f".{name}.{os.getpid()}"  # Several processes may write at once.
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, folder / name)
    return [folder / name for name in texts]


def _rounds_to_target(row: Row, entry: Entry, entries: Sequence[Entry]) -> Cell:
    """Returns the rounds until FedAvg's last accuracy is reached, or the speed-up over FedAvg."""
    base = next(
        (
            e.record
            for e in entries
            if e.record.config.get("seed") == entry.record.config.get("seed")
            and any(
                (r.method, r.dataset, r.partition) == ("fedavg", row.dataset, row.partition)
                for r in e.rows
            )
        ),
        None,
    )
    if base is None or not base.finished:
        return Cell(failure="its target is FedAvg's accuracy, but FedAvg's run is not finished")
    total = int(base.summary["rounds"])
    targets = base.values("accuracy", "last")
    rounds, values = entry.record.curve("accuracy")
    reached: list[int | None] = [
        total if entry.record.path == base.path else curves.rounds_to_target(rounds, v, target)
        for v, target in zip(values, targets, strict=False)
    ]
    numbers = [float(r) for r in reached if r is not None]
    if row.metric == "speedup":
        numbers = [total / n for n in numbers]
    missed = sum(r is None for r in reached)
    note = f"{missed} of {len(reached)} seeds do not reach the target in {total} rounds."
    return Cell(values=tuple(numbers), notes=(note,) if missed else ())
