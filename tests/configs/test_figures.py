"""The papers' figures as configurations."""

import inspect
import pathlib
import re

import numpy as np
import pytest

from configs import figures, tables
from experiments import cells, figure_drawings
from fedjax_skew.config import check
from fedjax_skew.data.partition import partition
from fedjax_skew.report import reference

ROOT = pathlib.Path(__file__).parent.parent.parent
DATA_FIGURES = {  # all but those that are drawings of an idea
    "fedlc": (1, 2, 4, 5, 6, 7),
    "fedlc_lt": (2, 4),
    "fedvls": (1, 2, 3, 4),
    "fedlf": (2, 3),
    "fedgr": (1, 2, 4, 5),
}


def of(name):
    return cells.module(name).FIGURE


def test_every_figure_with_data_is_there():
    expected = [f"{paper}/figure{n}" for paper, numbers in DATA_FIGURES.items() for n in numbers]
    assert list(figures.names()) == expected


@pytest.mark.parametrize("name", figures.names())
def test_every_run_is_a_valid_configuration_at_every_scale(tmp_path, name):
    assert of(name).name == name
    for run in cells.module(name).runs():
        check(run.config)
    for scale in ("cpu", "smoke"):
        for cell in cells.plan(name, tmp_path, scale=scale):
            check(cell.config)


@pytest.mark.parametrize("name", figures.names())
def test_every_figure_can_be_drawn_and_says_what_it_shows(name):
    figure = of(name)
    inspect.signature(figure_drawings.KINDS[figure.kind]).bind([], **figure.options)
    first = figure.about.split("\n")[0]
    assert first.startswith(f"{figure.title}. ")
    assert figure.caption.endswith(".") and figure.title not in figure.caption
    assert figure.chosen and all(text.endswith(".") for text in figure.chosen)
    assert f"--figure={name} " in figure.about
    for command in re.findall(rf"configs/{name}\.py(?::(\S+))?", figure.about):
        cells.module(name).get_config(command)


@pytest.mark.parametrize("name", figures.names())
def test_every_row_has_its_place_and_one_run(name):
    figure = of(name)
    rows = [row for run in figure.runs() for row in run.rows]
    assert sorted(figure.place(row) for row in rows) == list(range(len(figure.shown)))


@pytest.mark.parametrize("paper", DATA_FIGURES)
def test_the_papers_page_lists_its_figures(paper):
    text = (ROOT / "configs" / paper / "README.md").read_text()
    for name in figures.names():
        if name.startswith(f"{paper}/"):
            assert f"--figure={name} " in text and of(name).caption in text


def test_figures_share_runs_with_tables():
    def names(name):
        return {run.name for run in cells.module(name).runs()}

    assert names("fedvls/figure3") <= names("fedvls/table1")
    assert names("fedlf/figure2") <= names("fedlf/table1")
    assert names("fedgr/figure5") <= names("fedgr/table2")
    assert names("fedlc/figure6") == names("fedlc/figure7") <= names("fedlc/table1")
    assert len(names("fedvls/figure4") & names("fedvls/figure3")) == 7


def test_a_smoke_run_keeps_what_the_figure_varies(tmp_path):
    assert len(cells.plan("fedvls/figure4", tmp_path, scale="smoke")) == 4
    plan = cells.plan("fedvls/figure4", tmp_path, scale="smoke", only="method=fedavg,fedvls")
    varied = {(c.config.participation, c.config.local_steps, c.config.num_clients) for c in plan}
    assert varied == {(0.5, 20, 10), (1.0, 20, 10), (1.0, 40, 10), (1.0, 20, 30)}
    assert {cell.config.method for cell in plan} == {"fedavg", "fedvls"}
    plan = cells.plan("fedvls/figure4", tmp_path, scale="smoke", only="method=fedrs")
    assert {cell.config.method for cell in plan} == {"fedrs"}


def test_fields_of_a_figure_select_its_runs():
    runs = cells.module("fedgr/figure4").runs()
    (run,) = tables.select(runs, tables.parse("dataset=cifar10,labels=3,lam=0.5"))
    assert run.config.hparams.fedgr.lam == 0.5
    assert len(tables.select(runs, tables.parse("x=0.9"))) == 4


def test_the_partition_that_fedvls_prints_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = next(s.row.partition for s in of("fedvls/figure1").shown if s.row.method == "fedvls")
    labels = np.repeat(np.arange(10), 5000)
    counts = partition(spec, labels, num_clients=10, num_classes=10, seed=0).class_counts
    assert counts.sum() == 50_000
    # The classes that the text calls vacant and rare on the client it shows.
    assert np.flatnonzero(counts[0] == 0).tolist() == [0, 1, 2, 4, 6, 7]
    assert counts[0, 3] == 141


def test_names_of_figures_and_tables_do_not_mix():
    assert not set(figures.names()) & set(reference.table_names())
    with pytest.raises(ValueError, match="Did you mean 'fedlc/figure5'"):
        cells.module("fedlc/figur5")
