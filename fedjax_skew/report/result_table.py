"""A table of results with methods as rows and settings as columns, compared with a paper.

``collect`` builds tables from runs, and ``render`` converts them to Markdown, CSV and LaTeX; the
texts that all formats share are defined here. Numbers are in the units of the paper, which is
percent for accuracies.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

from fedjax_skew import errors
from fedjax_skew.metrics import curves
from fedjax_skew.report import names

NOT_RUN = "--"
MEGABYTES = "Megabytes"


class Header(NamedTuple):
    """The header of a row or column.

    Attributes:
        key: the key of the cells.
        group: text that neighbouring headers share, such as the dataset of a column, or empty.
        label: the rest of the text.
        higher_is_better: False if smaller numbers are better.
        decimals: number of decimals of the column's numbers.
    """

    key: str
    group: str = ""
    label: str = ""
    higher_is_better: bool = True
    decimals: int = 2

    @property
    def text(self) -> str:
        """The label, or the key if there is none."""
        return self.label or self.key


@dataclasses.dataclass(frozen=True)
class Cell:
    """The results of one method in one setting.

    Attributes:
        values: one number per finished seed; empty if the cell was not run or failed.
        failure: the reason why the cell, or some of its seeds, failed; empty without a failure.
        paper: the paper's number, if there is one.
        paper_std: its standard deviation, if printed.
        notes: sentences about this cell.
        megabytes: megabytes sent between the server and clients in the whole run, one number per
            seed; empty if they were not counted.
    """

    values: tuple[float, ...] = ()
    failure: str = ""
    paper: float | None = None
    paper_std: float | None = None
    notes: tuple[str, ...] = ()
    megabytes: tuple[float, ...] = ()

    @property
    def mean(self) -> float | None:
        """The mean over seeds, or None without values."""
        return curves.mean_std(self.values)[0] if self.values else None

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds (divisor S - 1), or None with fewer than two."""
        return curves.mean_std(self.values)[1] if self.values else None

    @property
    def gap(self) -> float | None:
        """The measured minus the printed number, or None if either is missing."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about the cell, starting with its failure."""
        return (*([f"Failed: {self.failure}"] if self.failure else []), *self.notes)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with methods as rows and settings as columns.

    Attributes:
        title: the title, for example ``"FedVLS Table 1"``.
        rows: headers of the rows.
        columns: headers of the columns.
        cells: cells by (row key, column key); missing cells count as not run.
        caption: a description of the table.
        reported: the measured quantity: ``last``, ``best``, ``mean_last_50``...
        paper_reported: the quantity that the paper reports; empty if there is no paper.
        row_marks: sentences about a whole row, by row key, for example that the method uses data
            on the server.
        scaled: sentences about what is smaller than in the paper.
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
        """Returns a cell, which is empty if it was not run."""
        return self.cells.get((row.key, column.key), Cell())

    @property
    def has_paper(self) -> bool:
        """Whether any cell has a paper's number."""
        return any(cell.paper is not None for cell in self.cells.values())

    @property
    def has_megabytes(self) -> bool:
        """Whether the bytes of any cell were counted."""
        return any(cell.megabytes for cell in self.cells.values())


class Agreement(NamedTuple):
    """The agreement of the order of methods with that of the paper in one column.

    Attributes:
        spearman: rank correlation, or None if there is no order to compare.
        methods: number of methods with both numbers.
    """

    spearman: float | None
    methods: int


def places(table: Table, column: Header) -> dict[str, int]:
    """Returns the best (1) and second best (2) methods of a column, by row key.

    Means are compared at the precision of the table, so that equal texts share a place. Non-finite
    values are excluded. The result is empty for a single method.
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
    """Computes the rank correlation between the measured and printed numbers of a column."""
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
    """Returns the distinct numbers of seeds of the measured cells, sorted."""
    return tuple(sorted({len(cell.values) for cell in table.cells.values() if cell.values}))


def mean_text(cell: Cell, column: Header) -> str:
    """Returns the text of the measured mean, or of its absence."""
    if cell.mean is None:
        return "failed" if cell.failure else NOT_RUN
    return f"{cell.mean:.{column.decimals}f}"


def spread_text(cell: Cell, column: Header, table: Table) -> str:
    """Returns the standard deviation, and the number of seeds if other cells have more."""
    words = [] if cell.std is None else [f"± {cell.std:.{column.decimals}f}"]
    if cell.values and len(cell.values) != seed_counts(table)[-1]:
        words.append(f"n={len(cell.values)}")
    return " ".join(words)


def paper_text(cell: Cell, column: Header) -> tuple[str, str]:
    """Returns the paper's number and the signed gap to it, each empty if there is none."""
    if cell.paper is None:
        return "", ""
    printed = f"{cell.paper:.{column.decimals}f}"
    if cell.gap is None:
        return printed, ""
    # Adding zero after rounding prevents a gap of -0.001 from being shown as a negative zero.
    return printed, f"{round(cell.gap, column.decimals) + 0.0:+.{column.decimals}f}"


def agreement_text(table: Table, column: Header) -> str:
    """Returns the text of a column's rank agreement with the paper."""
    spearman, methods = agreement(table, column)
    return NOT_RUN if spearman is None else f"{spearman:.2f} (n={methods})"


def megabytes_text(table: Table, row: Header) -> str:
    """Returns the megabytes of a row per seed, as a range if its columns differ, or empty."""
    cells = [table.cell(row, column) for column in table.columns]
    means = [curves.mean_std(cell.megabytes)[0] for cell in cells if cell.megabytes]
    texts = [names.megabytes(mean) for mean in (min(means), max(means))] if means else []
    return " to ".join(dict.fromkeys(texts))


def legend(table: Table, paper_place: str) -> list[str]:
    """Returns sentences that explain the table.

    Args:
        table: the table.
        paper_place: the place of the paper's numbers in the format, such as ``"In brackets"``.
    """
    counts = seed_counts(table)
    fewer = ", or over all of fewer" if table.reported == "mean_last_50" else ""
    sentences = [f"Measured: {names.reported(table.reported)}{fewer}."]
    if counts:
        seeds = "1 seed" if counts[-1] == 1 else f"{counts[-1]} seeds"
        std = "" if counts[-1] == 1 else "; mean ± standard deviation (divisor n - 1)"
        others = "; cells with fewer say n" if len(counts) > 1 else ""
        sentences.append(f"Over {seeds}{std}{others}.")
    if table.has_paper:
        if table.paper_reported:
            sentences.append(f"Paper: {names.reported(table.paper_reported)}.")
        sentences.append(f"{paper_place}: the paper's number and measured minus paper.")
        sentences.append("Spearman: agreement of the order of the n methods with the paper's.")
    if any(places(table, column) for column in table.columns):
        sentences.append("Bold: best measured mean of a column; underlined: second best.")
    if table.has_megabytes:
        sentences.append(f"{MEGABYTES}: sent per run and seed between server and clients.")
    return sentences
