"""The papers' numbers inside the package."""

import hashlib

import pytest

from fedjax_skew.report import reference

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
    assert {table: len(reference.load(table)) for table in reference.table_names()} == COUNTS
    assert len(COUNTS) == 24 and sum(COUNTS.values()) == 1400


def test_every_number_is_as_it_was_when_it_was_compared_with_the_papers():
    """Correct a number only with the paper at hand, and store the new hash with it."""
    digest = hashlib.sha256()
    for table in reference.table_names():
        for row in reference.load(table):
            value, _, std = row.printed.partition("±")
            assert float(value) == row.value
            assert (float(std) if std else None) == row.std
            fields = row._asdict() | {"table": table, "extras": sorted(row.extras.items())}
            digest.update(repr(sorted(fields.items())).encode())
    assert digest.hexdigest()[:16] == "d2e36546b9a76ba5"


@pytest.mark.parametrize("table", COUNTS)
def test_rows_and_columns_form_a_full_grid_with_distinct_readable_headers(table):
    rows, columns = reference.row_headers(table), reference.column_headers(table)
    cells = {(row.row, row.column) for row in reference.load(table)}
    assert cells == {(r.key, c.key) for r in rows for c in columns}
    assert len(cells) == COUNTS[table]
    assert len({r.label for r in rows}) == len(rows)
    assert len({(c.group, c.label) for c in columns}) == len(columns)
    assert all(header.label for header in (*rows, *columns))


@pytest.mark.parametrize("table", COUNTS)
def test_every_table_says_what_it_is_and_what_is_wrong_with_it(table):
    assert reference.caption(table).endswith(".")
    assert reference.reported(table) in {
        "last",
        "best",
        "mean_last_50",
        "rounds_to_target",
        "unstated",
    }
    notes = reference.footnotes(table)
    assert len(set(notes)) == len(notes) > 0
    assert all(note.endswith(".") and not note[0].islower() for note in notes)


def test_titles_number_tables_as_the_papers_do():
    assert reference.title("fedlc_lt/table3") == "FedLC-LT Table III"
    assert reference.title("fedgr/table2") == "FedGR Table 2"


def test_headers_say_only_what_differs():
    columns = reference.column_headers("fedlf/table1")
    assert (columns[0].group, columns[0].label) == ("CIFAR-10-LT", "IF=100 head")
    rows = reference.row_headers("fedvls/table5")
    assert [row.label for row in rows] == [
        "FedVLS (none)",
        "FedVLS (l_logit)",
        "FedVLS (l_dis)",
        "FedVLS (l_dis, l_logit)",
    ]
    rounds = reference.column_headers("fedgr/table4")
    assert [column.higher_is_better for column in rounds[:2]] == [False, True]


def test_a_known_cell_reads_back():
    (row,) = [
        row
        for row in reference.load("fedvls/table6")
        if row.method == "fedsam+fedvls" and row.dataset == "cifar10"
    ]
    assert (row.value, row.std, row.extras["gain"]) == (75.92, None, "12.81")


def test_unknown_table_suggests_the_nearest():
    with pytest.raises(ValueError, match="fedvls/table1"):
        reference.load("fedvls/tabel1")
