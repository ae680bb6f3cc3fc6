"""Tables written from saved numbers."""

from experiments import pages, saved_tables, values
from experiments.values import Value

FOLDER = pages.RESULTS.parent


def one(row, column, seed, value, **changes):
    return Value("fedlf/table1", row, column, "cpu", seed, value, command="COMMAND", **changes)


def test_committed_tables_are_up_to_date():
    texts = saved_tables.texts(values.read(pages.RESULTS))
    assert "fedlf_table1_cpu.md" in texts
    for name, text in texts.items():
        assert (FOLDER / name).read_text() == text, f"{name}: run python -m experiments.claims."


def test_seeds_are_averaged_and_shown_beside_the_paper():
    column = next(v.column for v in values.read(pages.RESULTS) if v.name == "fedlf/table1")
    found = [one("fedavg", column, 0, 40.0), one("fedavg", column, 1, 42.0, note="diverged")]
    table = saved_tables.build("fedlf/table1", "cpu", found)
    cell = table.cells["fedavg", column]
    assert cell.values == (40.0, 42.0) and cell.paper is not None
    assert cell.notes == ("Seed 1 diverged.",)
    assert any("simple_cnn instead of resnet8" in sentence for sentence in table.scaled)
    assert any("seeds: 2 instead of 3" in sentence for sentence in table.scaled)


def test_numbers_that_the_table_lacks_make_no_table():
    assert saved_tables.build("fedlf/table1", "cpu", [one("fedavg", "no column", 0, 1.0)]) is None


def test_accuracies_on_a_training_pool_and_figures_make_no_files():
    found = [v for v in values.read(pages.RESULTS) if v.name.endswith("figure6")]
    assert found and saved_tables.texts(found) == {}
    full = [v for v in values.read(pages.RESULTS) if (v.name, v.scale) == ("fedvls/table1", "full")]
    assert full and saved_tables.texts(full) == {}
