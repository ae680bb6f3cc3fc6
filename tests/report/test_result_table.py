"""The table model: what is computed from cells, and how measured cells meet a paper's."""

import math

import pytest

from fedjax_skew.report import reference, result_table
from fedjax_skew.report.reference import Header
from fedjax_skew.report.result_table import Cell, Table


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


def test_measured_cells_get_the_papers_numbers_and_nothing_else_is_kept():
    measured = {
        ("fedavg", "synthetic synthetic(1,1)"): Cell((63.0, 64.0)),
        ("fedlc", "synthetic synthetic(1,1)"): Cell((75.0, 76.0)),
    }
    table = result_table.paper_table("fedlc/table4", measured, row_marks={"fedopt": ("x",)})
    assert [row.key for row in table.rows] == ["fedavg", "fedlc"]
    assert len(table.columns) == 1
    cell = table.cells["fedlc", "synthetic synthetic(1,1)"]
    assert (cell.values, cell.paper, cell.paper_std) == ((75.0, 76.0), 75.46, 0.52)
    assert table.reported == table.paper_reported == "last"
    assert reference.footnotes("fedlc/table4")[0] in table.footnotes
    assert result_table.seed_counts(table) == (2,)


def test_whole_paper_table_can_be_kept():
    table = result_table.paper_table("fedgr/table4", {}, only_measured=False)
    assert (len(table.rows), len(table.columns)) == (8, 6)
    assert result_table.seed_counts(table) == ()


def test_unknown_cells_are_refused_with_a_suggestion():
    with pytest.raises(ValueError, match=r"fedavg / head_acc"):
        result_table.paper_table("fedlf/table4", {("fedavg", "head_ac"): Cell()})
    with pytest.raises(ValueError, match=r"row='z'"):
        Table("T", (Header("a"),), (Header("c"),), {("z", "c"): Cell()})
