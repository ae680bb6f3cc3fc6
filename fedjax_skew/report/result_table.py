"""A table of results: methods by settings, measured beside printed.

The model here knows numbers only; ``render`` turns it into markdown, CSV and LaTeX. Numbers are in
the units of the paper, which for accuracies means percent.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

from fedjax_skew import errors
from fedjax_skew.metrics import curves
from fedjax_skew.report import reference
from fedjax_skew.report.reference import Header


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method in one setting.

    Attributes:
        values: one number per finished seed; empty when the cell was not run or failed.
        failure: why the cell, or some of its seeds, failed; empty if nothing did.
        paper: the paper's number, if there is one.
        paper_std: its standard deviation, if printed.
        notes: sentences that belong to this cell alone.
    """

    values: tuple[float, ...] = ()
    failure: str = ""
    paper: float | None = None
    paper_std: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """Mean over seeds, or None without values."""
        return curves.mean_std(self.values)[0] if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds (divisor S - 1), or None with fewer than two."""
        return curves.mean_std(self.values)[1] if self.values else None

    @property
    def gap(self) -> float | None:
        """Measured minus printed, or None if either is missing."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of methods, columns of settings.

    Attributes:
        title: for example ``"FedVLS Table 1"``.
        rows: headers of the rows; ``key`` finds the cells.
        columns: headers of the columns.
        cells: by (row key, column key); a missing one counts as not run.
        caption: what the table shows.
        reported: what the measured numbers are: ``last``, ``best``, ``mean_last_50``...
        paper_reported: what the paper's numbers are; empty if there is no paper.
        row_marks: sentences about a whole row, by row key, for example that the method uses data
            on the server.
        scaled: what was made smaller than in the paper, one sentence each.
        footnotes: sentences about the table, for example known inconsistencies of the paper.
    """

    title: str
    rows: tuple[Header, ...]
    columns: tuple[Header, ...]
    cells: Mapping[tuple[str, str], Cell]
    caption: str = ""
    reported: str = "last"
    paper_reported: str = ""
    row_marks: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    scaled: tuple[str, ...] = ()
    footnotes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows, columns = {r.key for r in self.rows}, {c.key for c in self.columns}
        for row, column in self.cells:
            if row not in rows:
                raise errors.unknown("row", row, rows)
            if column not in columns:
                raise errors.unknown("column", column, columns)
        for row in self.row_marks:
            if row not in rows:
                raise errors.unknown("row", row, rows)

    def cell(self, row: Header, column: Header) -> Cell:
        """The cell, empty if it was never run."""
        return self.cells.get((row.key, column.key), Cell())


class Agreement(NamedTuple):
    """How far the order of methods agrees with the paper's in one column.

    Attributes:
        spearman: rank correlation, or None when there is no order to compare.
        methods: how many methods have both numbers.
    """

    spearman: float | None
    methods: int


def paper_table(
    name: str,
    measured: Mapping[tuple[str, str], Cell],
    *,
    reported: str | None = None,
    only_measured: bool = True,
    row_marks: Mapping[str, tuple[str, ...]] | None = None,
    scaled: tuple[str, ...] = (),
    footnotes: tuple[str, ...] = (),
) -> Table:
    """Puts measured cells beside a paper's table.

    Args:
        name: one of ``reference.table_names()``.
        measured: cells by ``(Row.row, Row.column)`` of ``reference.load(name)``; the paper's
            numbers are filled in here.
        reported: what the measured numbers are; by default what the paper reports.
        only_measured: leave out rows and columns in which nothing was run.
        row_marks: sentences about whole rows, by row key; rows left out are ignored.
        scaled: what was made smaller than in the paper.
        footnotes: sentences to add to the known inconsistencies of the paper.
    """
    cells = {
        (row.row, row.column): dataclasses.replace(
            measured.get((row.row, row.column), Cell()), paper=row.value, paper_std=row.std
        )
        for row in reference.load(name)
    }
    for key in measured:
        if key not in cells:
            raise errors.unknown("cell", " / ".join(key), (" / ".join(known) for known in cells))
    rows, columns = reference.row_headers(name), reference.column_headers(name)
    if only_measured:
        rows = tuple(r for r in rows if any(key[0] == r.key for key in measured))
        columns = tuple(c for c in columns if any(key[1] == c.key for key in measured))
    kept = {(r.key, c.key) for r in rows for c in columns}
    row_keys = {r.key for r in rows}
    return Table(
        title=reference.title(name),
        rows=rows,
        columns=columns,
        cells={key: cell for key, cell in cells.items() if key in kept},
        caption=reference.caption(name),
        reported=reported or reference.reported(name),
        paper_reported=reference.reported(name),
        row_marks={k: v for k, v in (row_marks or {}).items() if k in row_keys},
        scaled=scaled,
        footnotes=(*footnotes, *reference.footnotes(name)),
    )


def places(table: Table, column: Header) -> dict[str, int]:
    """Who is best (1) and second (2) in a column, by row key.

    Means are compared at the precision that is shown, so what looks equal shares a place. Values
    that are not finite take no part. With one method alone there is no contest.
    """
    shown = {}
    for row in table.rows:
        mean = table.cell(row, column).mean
        if mean is not None and math.isfinite(mean):
            shown[row.key] = round(mean, column.decimals)
    ordered = sorted(set(shown.values()), reverse=column.higher_is_better)
    if len(shown) < 2:
        return {}
    return {row: ordered.index(v) + 1 for row, v in shown.items() if v in ordered[:2]}


def agreement(table: Table, column: Header) -> Agreement:
    """Spearman's rank correlation between measured and printed numbers of a column's rows."""
    cells = [table.cell(row, column) for row in table.rows]
    pairs = [
        (cell.mean, cell.paper)
        for cell in cells
        if cell.paper is not None and cell.mean is not None and math.isfinite(cell.mean)
    ]
    if len(pairs) < 2:
        return Agreement(None, len(pairs))
    return Agreement(curves.spearman(*zip(*pairs, strict=True)), len(pairs))


def seed_counts(table: Table) -> tuple[int, ...]:
    """The different numbers of seeds behind the measured cells, sorted."""
    return tuple(sorted({len(cell.values) for cell in table.cells.values() if cell.values}))
