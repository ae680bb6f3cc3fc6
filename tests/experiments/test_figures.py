"""Figures from runs: drawn from made-up results, and once from a real run."""

import json

import numpy as np
import pytest

from experiments import (
    cells,
    dry_run,
    figure_analyses,
    figure_drawings,
    figure_numbers,
    figures,
    papers,
)
from experiments.executor import run_cell
from tests.experiments.test_cells import finish

SMALL = [
    "dataset.name=synthetic(1,1)",
    "model=logistic",
    "num_clients=5",
    "local_steps=2",
    "batch_size=16",
]


def drawn(monkeypatch, name, plan, workdir):
    """The matplotlib figures of a figure, by suffix, instead of files."""
    found = {}

    def keep(figure, stem):
        figure.draw_without_rendering()
        found[stem.name] = figure
        return ()

    monkeypatch.setattr(figures.style, "save", keep)
    figures.write(name, plan, workdir)
    return found


def test_curves_of_finished_runs_only(tmp_path, monkeypatch):
    plan = cells.plan("fedlc/figure5", tmp_path, only="alpha=2,4", seeds=2, rounds=4)
    curve = [(2, [0.2, 0.4]), (4, [0.5, 0.7])]
    for cell in plan[:3]:
        finish(cell, [0.5, 0.7], curve=curve)
    (figure,) = drawn(monkeypatch, "fedlc/figure5", plan, tmp_path).values()
    assert [axis.get_title() for axis in figure.axes] == [
        "ImageNet-12, α = 2",
        "ImageNet-12, α = 4",
    ]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [30, 60])
    assert [len(axis.lines) for axis in figure.axes] == [2, 1]
    words = " ".join(figure.get_supxlabel().split())
    assert "rounds: 4 instead of 400." in words and "seeds: 2 instead of 5." in words
    assert "Left out: 1 not finished." in words


def test_curves_are_also_drawn_against_megabytes_where_they_were_counted(tmp_path, monkeypatch):
    plan = cells.plan("fedlc/figure5", tmp_path, only="alpha=2", seeds=1, rounds=4)
    for cell in plan:
        finish(cell, [0.7])
        lines = [{"round": r, "accuracy": [0.1 * r]} for r in (2, 4)]
        for line in lines:
            line |= {"bytes_down": [3_000_000], "bytes_up": [line["round"] * 1_000_000]}
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (cell.directory / "metrics.jsonl").write_text(text)
    found = drawn(monkeypatch, "fedlc/figure5", plan, tmp_path)
    assert list(found) == ["fedlc_figure5", "fedlc_figure5_megabytes"]
    (axis,) = found["fedlc_figure5_megabytes"].axes
    assert list(axis.lines[0].get_xdata()) == [5, 7] and "megabytes" in axis.get_xlabel()


def test_nothing_is_drawn_of_nothing_and_the_full_recipe_needs_no_words(tmp_path, monkeypatch):
    plan = cells.plan("fedlf/figure3", tmp_path)
    assert figures.write("fedlf/figure3", plan, tmp_path) == []
    for cell in plan:
        finish(cell, [0.5, 0.6, 0.7])
    (figure,) = drawn(monkeypatch, "fedlf/figure3", plan, tmp_path).values()
    assert figure.get_supxlabel() == ""
    assert [axis.get_xscale() for axis in figure.axes] == ["log", "log"]
    assert all(len(axis.get_xticks()) == 5 for axis in figure.axes)
    page = (tmp_path / "fedlf_figure3.md").read_text()
    assert (
        "Chosen for this figure: Data" in page
        and "H, from chosen here" not in page
        and "Computed on" in page
    )


def test_a_figure_that_trains_nothing_keeps_its_data_at_any_scale(tmp_path):
    for scale in ("smoke", "cpu"):
        plan = cells.plan("fedlc/figure4", tmp_path, scale=scale)
        assert {cell.config.dataset.name for cell in plan} == {"cifar10"}
        assert cells.scaled_sentences(plan) == ()


def test_bars_have_a_gap_where_a_run_is_missing(tmp_path, monkeypatch):
    plan = cells.plan("fedgr/figure2", tmp_path, only="method=fedavg,moon")
    for cell in plan[:-1]:
        finish(cell, [0.5] * 5)
    (figure,) = drawn(monkeypatch, "fedgr/figure2", plan, tmp_path).values()
    groups = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert groups == ["label imbalance", "quantity imbalance", "double imbalance"]
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    np.testing.assert_array_equal(heights, [50, 50, 50, 50, 50, np.nan])


def test_a_class_of_each_role_is_found_near_the_printed_counts():
    counts = np.array([[0, 10, 900], [0, 450, 2600], [5, 450, 2600]])
    assert figure_drawings.nearest_client(counts, (448, 2608)) == (1, [0, 1, 2])
    with pytest.raises(ValueError, match="stronger label skew"):
        figure_drawings.nearest_client(np.ones((2, 3), int), (448, 2608))


def test_blocks_are_stages_with_the_stem_in_the_first():
    resnet = {"backbone": {k: 0 for k in ("stem", "stage0_block0", "stage1_block0")}, "head": 0}
    assert figure_analyses._blocks(resnet) == {
        "block 1": ("stage0_block0", "stem"),
        "block 2": ("stage1_block0",),
        "classifier": ("head",),
    }
    mask = figure_analyses._mask({"backbone": {"stem": 1, "x": 1}, "head": {"a": 1}}, ("stem",))
    assert mask == {"backbone": {"stem": 1.0, "x": 0.0}, "head": {"a": 0.0}}


def test_the_list_has_every_figure_with_its_command():
    text = dry_run.listing()
    for name in papers.figure_names():
        assert cells.command(name) in text and f"{papers.title(name)}. " in text


def test_a_local_update_is_computed_once_from_the_checkpoint(tmp_path, monkeypatch):
    changes = [*SMALL, "partition=dirichlet(beta=0.3)"]
    plan = cells.plan("fedlc/figure2", tmp_path, scale="smoke", rounds=1, changes=changes)
    (cell,) = plan
    assert run_cell(cell.config, cell.directory, progress=False) == ""
    (figure,) = drawn(monkeypatch, "fedlc/figure2", plan, tmp_path).values()
    assert [axis.get_title() for axis in figure.axes[:5]] == [f"client {k}" for k in range(5)]
    summary = json.loads((cell.directory / "summary.json").read_text())
    found = figure_analyses.local_update(cell)
    np.testing.assert_array_equal(found["before"][0], summary["confusion"][0])
    counts = figure_analyses.class_counts(cell)
    np.testing.assert_array_equal(found["class_counts"][0], counts)
    assert found["after"].shape == (1, 5, 10, 10) and found["aggregated"].shape == (1, 10, 10)
    bounds = figure_analyses.deviation_bounds(cell, tau=1.0)
    assert bounds["plain"].shape == bounds["calibrated"].shape == (1,)
    assert np.isfinite(bounds["plain"]).all() and (bounds["plain"] != bounds["calibrated"]).all()
    same = figure_analyses.deviation_bounds(cell, tau=0.0)
    np.testing.assert_allclose(same["plain"], same["calibrated"], rtol=1e-5)
    monkeypatch.setattr(figure_analyses, "restored", None)
    figure_analyses.local_update(cell)  # Comes from the run's directory.
    numbers = {v.row: v.value for v in figure_numbers.figure_values("fedlc/figure2", plan, "")}
    roles = figure_numbers.role_accuracies(found["after"], found["class_counts"])[0]
    assert numbers["majority after"] == roles[0] and len(numbers) == 6


def test_a_run_without_its_checkpoint_is_one_sentence(tmp_path):
    (cell,) = cells.plan("fedlc/figure2", tmp_path, scale="smoke", changes=SMALL)
    finish(cell, [0.5])
    with pytest.raises(ValueError, match="no checkpoint of round 8"):
        figure_analyses.features(cell, per_class=1)
