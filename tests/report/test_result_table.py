"""The table model: what is computed from cells."""

import math

import pytest

from fedjax_skew.report import result_table
from fedjax_skew.report.result_table import Cell, Header, Table


def one_column(values, papers=None, **column):
    rows = tuple(Header(name) for name in values)
    cells = {
        (name, "c"): Cell(tuple(v), paper=(papers or {}).get(name)) for name, v in values.items()
    }
    return Table("T", rows, (Header("c", **column),), cells)


def test_cell_statistics():
    cell = Cell((1.0, 2.0, 3.0), paper=1.5)
    assert (cell.mean, cell.std, cell.gap) == (2.0, 1.0, 0.5)
    assert (Cell((4.0,)).std, Cell((4.0,)).gap) == (None, None)
    assert (Cell(paper=3.0).mean, Cell(paper=3.0).gap) == (None, None)


def test_equal_shown_numbers_share_a_place():
    table = one_column({"a": [9.001], "b": [9.004], "c": [8.0], "d": [7.0], "e": []})
    assert result_table.places(table, table.columns[0]) == {"a": 1, "b": 1, "c": 2}


def test_small_numbers_win_where_rounds_are_counted():
    table = one_column({"a": [300], "b": [100], "c": [200]}, higher_is_better=False)
    assert result_table.places(table, table.columns[0]) == {"b": 1, "c": 2}


def test_diverged_cells_and_lone_methods_take_no_place():
    table = one_column({"a": [math.nan], "b": [5.0]})
    assert result_table.places(table, table.columns[0]) == {}


def test_rank_agreement_uses_rows_with_both_numbers():
    papers = {"a": 10.0, "b": 20.0, "c": 30.0, "d": 40.0}
    table = one_column({"a": [1], "b": [2], "c": [3], "d": [], "e": [9]}, papers)
    assert result_table.agreement(table, table.columns[0]) == (pytest.approx(1), 3)
    reverse = one_column({"a": [3], "b": [2], "c": [1]}, papers)
    assert result_table.agreement(reverse, reverse.columns[0]).spearman == pytest.approx(-1)
    alone = one_column({"a": [3]}, papers)
    assert result_table.agreement(alone, alone.columns[0]) == (None, 1)


def test_an_unknown_row_is_refused():
    with pytest.raises(ValueError, match=r"row='z'"):
        Table("T", (Header("a"),), (Header("c"),), {("z", "c"): Cell()})
