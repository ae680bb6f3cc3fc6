"""The papers' numbers as printed."""

import functools
import hashlib
import json

import pytest

from experiments import cells, printed
from tests.experiments.test_cells import finish

TABLES = {
    "fedlc": [84, 56, 28, 28, 64, 28, 16],
    "fedlc_lt": [90, 60, 5],
    "fedvls": [156, 39, 72, 10, 12, 18],
    "fedlf": [192, 192, 32, 32],
    "fedgr": [88, 44, 48, 6],
}
COUNTS = {
    f"{paper}/table{number + (2 if paper == 'fedgr' else 1)}": count
    for paper, counts in TABLES.items()
    for number, count in enumerate(counts)
}


def test_all_24_tables_are_there_with_all_their_rows():
    assert {table: len(printed.load(table)) for table in printed.table_names()} == COUNTS
    assert len(COUNTS) == 24 and sum(COUNTS.values()) == 1400


def test_every_number_is_as_it_was_when_it_was_compared_with_the_papers():
    """Correct a number only with the paper at hand, and store the new hash with it."""
    digest = hashlib.sha256()
    for table in printed.table_names():
        for row in printed.load(table):
            value, _, std = row.printed.partition("±")
            assert float(value) == row.value
            assert (float(std) if std else None) == row.std
            fields = row._asdict() | {"table": table, "extras": sorted(row.extras.items())}
            digest.update(repr(sorted(fields.items())).encode())
    assert digest.hexdigest()[:16] == "00394a9dda1dc446"


@pytest.mark.parametrize("table", COUNTS)
def test_rows_and_columns_form_a_full_grid_with_distinct_readable_headers(table):
    rows, columns = printed.row_headers(table), printed.column_headers(table)
    cells = {(row.row, row.column) for row in printed.load(table)}
    assert cells == {(r.key, c.key) for r in rows for c in columns}
    assert len(cells) == COUNTS[table]
    assert len({r.label for r in rows}) == len(rows)
    assert len({(c.group, c.label) for c in columns}) == len(columns)
    assert all(header.label for header in (*rows, *columns))


@pytest.mark.parametrize("table", COUNTS)
def test_every_table_says_what_it_is_and_what_is_wrong_with_it(table):
    assert printed.caption(table).endswith(".")
    assert printed.reported(table) in {
        "last",
        "best",
        "mean_last_50",
        "rounds_to_target",
        "unstated",
    }
    notes = printed.footnotes(table)
    assert len(set(notes)) == len(notes) > 0
    assert all(note.endswith(".") and not note[0].islower() for note in notes)


def test_titles_number_tables_as_the_papers_do():
    assert printed.title("fedlc_lt/table3") == "FedLC-LT Table III"
    assert printed.title("fedgr/table2") == "FedGR Table 2"


def test_headers_say_only_what_differs():
    columns = printed.column_headers("fedlf/table1")
    assert (columns[0].group, columns[0].label) == ("CIFAR-10-LT", "IF=100 head")
    rows = printed.row_headers("fedvls/table5")
    assert [row.label for row in rows] == [
        "FedVLS (none)",
        "FedVLS (l_logit)",
        "FedVLS (l_dis)",
        "FedVLS (l_dis, l_logit)",
    ]
    rounds = printed.column_headers("fedgr/table4")
    assert [column.higher_is_better for column in rounds[:2]] == [False, True]


def test_a_known_cell_reads_back():
    (row,) = [
        row
        for row in printed.load("fedvls/table6")
        if row.method == "fedsam+fedvls" and row.dataset == "cifar10"
    ]
    assert (row.value, row.std, row.extras["gain"]) == (75.92, None, "12.81")


def test_unknown_table_suggests_the_nearest():
    with pytest.raises(ValueError, match="fedvls/table1"):
        printed.load("fedvls/tabel1")


def test_a_new_table_costs_one_file(tmp_path, monkeypatch):
    for path in printed.FOLDER.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    data = json.loads((tmp_path / "fedlc.json").read_text())
    data["tables"]["table8"] = {
        "caption": "A toy.",
        "footnotes": [],
        "common": {"model": "unstated", "setting": "", "metric": "accuracy"},
        "columns": [{"dataset": "cifar10", "partition": "dirichlet(beta=0.7)"}],
        "rows": [
            {"method": "fedavg", "cells": ["61.50±0.10"]},
            {"method": "fedlc", "cells": ["70"]},
        ],
    }
    (tmp_path / "fedlc.json").write_text(json.dumps(data))
    monkeypatch.setattr(printed, "FOLDER", tmp_path)
    monkeypatch.setattr(printed, "_data", functools.cache(printed._data.__wrapped__))
    chosen = cells.plan("fedlc/table8", tmp_path, scale="cpu", seeds=1)
    assert [cell.config.method for cell in chosen] == ["fedavg", "fedlc"]
    assert {cell.config.partition for cell in chosen} == {"dirichlet(beta=0.7)"}
    finish(chosen[0], [0.6])
    (table,) = cells.build_table("fedlc/table8", chosen)
    assert table.title == "FedLC Table 8" and table.caption == "A toy."
    assert table.cells["fedavg", "cifar10 dirichlet(beta=0.7)"].paper == 61.5
