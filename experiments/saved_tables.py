"""Writes the papers' tables from the saved numbers, without the runs that measured them.

A table is written for every scale at which some of its numbers were measured. Tables of accuracies
on a training pool are left out, because only the runs have the accuracies on the test set.
"""

import pathlib
from collections.abc import Sequence

from experiments import cells, collect, papers
from experiments.values import Value, place
from fedjax_skew.report import render
from fedjax_skew.report.result_table import Cell, Table


def write(folder: pathlib.Path, found: Sequence[Value]) -> list[pathlib.Path]:
    """Writes ``<table>_<scale>.md`` and ``.csv`` for every table, and returns the paths."""
    return collect.write_texts(folder, texts(found))


def texts(found: Sequence[Value]) -> dict[str, str]:
    """Returns the text of every file by its name."""
    made: dict[str, str] = {}
    for name, scale in sorted({(v.name, v.scale) for v in found if not papers.is_figure(v.name)}):
        mine = [v for v in found if (v.name, v.scale) == (name, scale)]
        table = build(name, scale, mine)
        if table is not None:
            stem = cells.file_stem(name, scale.split(" "))
            commands = "\n".join(f"    {command}" for command in sorted({v.command for v in mine}))
            made[f"{stem}.md"] = f"{render.to_markdown(table)}\nCommands:\n\n{commands}\n"
            made[f"{stem}.csv"] = render.to_csv(table)
    return made


def build(name: str, scale: str, found: Sequence[Value]) -> Table | None:
    """Returns a table with the numbers that were measured at a scale.

    Args:
        name: the table, such as ``"fedlc/table1"``.
        scale: the scale of all values, such as ``"cpu rounds=300"``.
        found: the values of the table.

    Returns:
        The table, or None if a number is the accuracy on a training pool or if the table has none
        of the numbers any more.
    """
    paper, _ = papers.of(name)
    by_place: dict[tuple[str, str], list[Value]] = {}
    for value in sorted(found, key=lambda value: value.key):
        by_place.setdefault((value.row, value.column), []).append(value)
    size, *changes = scale.split(" ")
    flags = [word for word in changes if word.startswith(("rounds=", "variant="))]
    special = dict(word.split("=", 1) for word in flags)
    planned = [
        cell
        for cell in cells.plan(
            name,
            "",
            scale=size,
            seeds=max(map(len, by_place.values())),
            rounds=int(special.get("rounds", 0)),
            variant=special.get("variant", ""),
            changes=[word for word in changes if word not in flags],
        )
        if any(place(row) in by_place for row in cell.run.rows)
    ]
    rows = [row for cell in planned for row in cell.run.rows if place(row) in by_place]
    if not rows or any(paper.measured(row)[0] == "train_accuracy" for row in rows):
        return None
    which = {paper.measured(row)[1] for row in rows}
    return collect.table(
        name,
        {(row.row, row.column): _cell(by_place[place(row)]) for row in rows},
        reported=which.pop() if len(which) == 1 else paper.reported,
        row_marks=cells.row_marks(planned),
        scaled=cells.scaled_sentences(planned),
        footnotes=cells.provenance(name, rows),
    )


def _cell(found: Sequence[Value]) -> Cell:
    notes = dict.fromkeys(f"Seed {v.seed} {v.note}." for v in found if v.note)
    return Cell(values=tuple(value.value for value in found), notes=tuple(notes))
