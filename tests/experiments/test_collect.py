"""From run directories to a paper's table."""

import pathlib

import pytest

from experiments import collect, printed
from fedjax_skew.report import result_table
from fedjax_skew.runs.store import Record

COLUMN = "synthetic synthetic(1,1)"


def entry(row, values, failure=""):
    """A finished run, or a failed one, that answers a row; values in percent."""
    numbers = {"last": {"per_seed": [value / 100 for value in values]}}
    summary = {} if failure else {"status": "finished", "accuracy": numbers}
    record = Record(pathlib.Path(row.row), {}, summary, failure, running=False)
    return collect.Entry((row,), record)


def last(row):
    return "accuracy", "last"


def measured_table(name, values):
    """A paper's table in which every cell is measured."""
    entries = [entry(row, values(row)) for row in printed.load(name)]
    return collect.table(name, collect.cells(entries, last), reported="last")


def rows_of(column):
    return {row.row: row for row in printed.load("fedlc/table4") if row.column == column}


def test_measured_cells_get_the_papers_numbers_and_nothing_else_is_kept():
    rows = rows_of(COLUMN)
    entries = [entry(rows["fedavg"], [63.0, 64.0]), entry(rows["fedlc"], [75.0, 76.0])]
    table = collect.table("fedlc/table4", collect.cells(entries, last), reported="last")
    assert [row.key for row in table.rows] == ["fedavg", "fedlc"]
    assert [column.key for column in table.columns] == [COLUMN]
    cell = table.cells["fedlc", COLUMN]
    assert cell.values == pytest.approx((75.0, 76.0))
    assert (cell.paper, cell.paper_std) == (75.46, 0.52)
    assert table.reported == table.paper_reported == "last"
    assert printed.footnotes("fedlc/table4")[0] in table.footnotes
    assert result_table.seed_counts(table) == (2,)


def test_seeds_in_runs_of_their_own_share_a_cell_and_a_failure_keeps_its_reason():
    row = rows_of(COLUMN)["fedavg"]
    entries = [entry(row, [60.0]), entry(row, [62.0]), entry(row, [], failure="out of memory")]
    table = collect.table("fedlc/table4", collect.cells(entries, last), reported="last")
    cell = table.cells["fedavg", COLUMN]
    assert cell.values == pytest.approx((60.0, 62.0))
    assert cell.failure == "out of memory"


def test_a_column_that_the_paper_lacks_comes_last_without_its_numbers():
    row = rows_of(COLUMN)["fedavg"]
    entries = [entry(row, [60.0]), entry(row._replace(column="mnist"), [90.0])]
    table = collect.table("fedlc/table4", collect.cells(entries, last), reported="last")
    assert [column.label for column in table.columns][1] == "MNIST (not in the paper)"
    assert table.cells["fedavg", "mnist"].paper is None
