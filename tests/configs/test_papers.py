"""The papers as data: every table and figure is a set of valid configurations with sources."""

import inspect
import math
import re

import numpy as np
import pytest

from configs import quickstart
from configs.common import finish
from experiments import cells, figure_drawings, papers, printed, recipes, selection
from experiments.recipes import FromRow
from fedjax_skew.config import check, default_config, lookup
from fedjax_skew.data.partition import partition

DATA_FIGURES = {  # all but those that are drawings of an idea
    "fedlc": (1, 2, 4, 5, 6, 7),
    "fedlc_lt": (2, 4),
    "fedvls": (1, 2, 3, 4),
    "fedlf": (2, 3),
    "fedgr": (1, 2, 4, 5),
}


def runs(name):
    paper, place = papers.of(name)
    return paper.runs(place)


def only(name, text):
    found = selection.select(runs(name), selection.parse(text))
    assert len(found) == 1
    return found[0].config


def figure(name):
    paper, place = papers.of(name)
    return paper.figure(place)


def test_all_tables_and_all_figures_with_data_are_there():
    assert len(printed.table_names()) == 24
    expected = [f"{key}/figure{n}" for key, numbers in DATA_FIGURES.items() for n in numbers]
    assert sorted(papers.figure_names()) == sorted(expected)
    with pytest.raises(ValueError, match="Did you mean 'fedlc/figure5'"):
        papers.of("fedlc/figur5")


@pytest.mark.parametrize("key", printed.papers())
def test_every_setting_names_a_field_its_source_and_a_place_it_applies_to(key):
    paper, plain = papers.paper(key), default_config()
    assert {s.source for s in paper.recipe} <= set(recipes.SOURCES)
    assert {note.source for note in paper.notes} <= set(recipes.SOURCES)
    rows = [
        (name.partition("/")[2], row)
        for name in papers.names_of(key)
        for run in runs(name)
        for row in run.rows
    ]
    used = {id(s) for place, row in rows for s in paper.settings(place, row).values()}
    for setting in paper.recipe:
        old = lookup(plain, setting.field)
        if not isinstance(setting.value, FromRow):
            assert type(setting.value) is type(old) or isinstance(old, float), setting.field
        # A general value may give way to a special one everywhere, as the rounds of a budget do.
        assert id(setting) in used or not setting.where, setting
    for text in (*(s.note for s in paper.recipe), *(n.text for n in paper.notes), paper.about):
        assert not text or text.endswith((".", "'.")), text


@pytest.mark.parametrize("name", printed.table_names())
def test_every_cell_is_a_valid_configuration_at_every_scale(tmp_path, name):
    for run in runs(name):
        check(run.config)
        check(finish(run.config, "smoke"))
    for cell in cells.plan(name, tmp_path, scale="cpu"):
        check(cell.config)


@pytest.mark.parametrize("name", papers.figure_names())
def test_every_run_of_a_figure_is_valid_at_every_scale(tmp_path, name):
    for run in runs(name):
        check(run.config)
    for scale in ("cpu", "smoke"):
        for cell in cells.plan(name, tmp_path, scale=scale):
            check(cell.config)


@pytest.mark.parametrize("name", papers.figure_names())
def test_every_figure_can_be_drawn_and_says_what_it_shows(name):
    found = figure(name)
    inspect.signature(figure_drawings.KINDS[found.kind]).bind([], **found.options)
    assert found.caption.endswith(".")
    assert found.chosen and all(text.endswith(".") for text in found.chosen)
    rows = [row for run in runs(name) for row in run.rows]
    assert sorted(found.position(row) for row in rows) == list(range(len(found.shown)))


@pytest.mark.parametrize("name", printed.table_names())
def test_every_printed_number_is_answered_by_exactly_one_run(name):
    answered = [
        (row.row, row.column) for run in runs(name) for row in run.rows if not math.isnan(row.value)
    ]
    assert sorted(answered) == sorted((row.row, row.column) for row in printed.load(name))
    directories = [run.name for run in runs(name)]
    assert len(set(directories)) == len(directories)
    assert all(re.fullmatch(r"[\w.=+-]+", directory) for directory in directories)


def test_metrics_of_one_training_share_a_run():
    assert len(runs("fedlf/table1")) == 48
    assert {len(run.rows) for run in runs("fedlf/table1")} == {4}
    assert {len(run.rows) for run in runs("fedgr/table2")} == {2}


def test_tables_and_figures_share_runs_in_one_store():
    def of(name):
        return {run.name for run in runs(name)}

    assert of("fedgr/table4") <= of("fedgr/table2") | of("fedgr/table3")
    assert len(of("fedvls/table1") & of("fedvls/table6")) == 12
    assert of("fedvls/figure3") <= of("fedvls/table1")
    assert of("fedlf/figure2") <= of("fedlf/table1")
    assert of("fedgr/figure5") <= of("fedgr/table2")
    assert of("fedlc/figure6") == of("fedlc/figure7") <= of("fedlc/table1")
    assert len(of("fedvls/figure4") & of("fedvls/figure3")) == 7


def test_fedlc_runs_as_stated():
    config = only("fedlc/table1", "method=scaffold,dataset=svhn,beta=0.05")
    assert (config.dataset.name, config.num_clients, config.rounds) == ("svhn_cropped", 20, 400)
    assert (config.local_epochs, config.clip_norm) == (1, 10.0)
    assert (config.batch_size, config.client_lr, config.weight_decay) == (128, 0.01, 0.0)
    config = only("fedlc/table4", "method=fedlc,partition=synthetic(0.5,0.5)")
    assert (config.dataset.name, config.partition) == ("synthetic(0.5,0.5)", "natural")
    assert (config.num_clients, config.rounds, config.num_seeds) == (100, 300, 5)
    config = only("fedlc/table5", "method=fedavg,dataset=svhn,alpha=5,local_epochs=20")
    assert (config.local_epochs, config.num_clients) == (20, 10)
    config = only("fedlc/table2", "method=fedavg,dataset=cifar10,alpha=2")
    assert (config.local_epochs, config.model, config.augment) == (5, "fedlc_cnn", "crop_flip")
    config = only("fedlc/table6", "method=fedavg,num_clients=50")
    assert (config.num_clients, config.dataset.name) == (50, "cifar10")


def test_fedlc_lt_runs_as_stated_with_one_partition_for_all_methods():
    for table in ("fedlc_lt/table1", "fedlc_lt/table2", "fedlc_lt/table3"):
        for run in runs(table):
            c = run.config
            assert (c.num_clients, c.participation, c.rounds, c.local_steps) == (20, 0.4, 200, 10)
            assert (c.batch_size, c.client_lr) == (64, 0.1)
            assert c.server_data.labelled == 0.05
            assert c.server_data.unlabelled == 0
            expected = run.rows[0].partition.replace("dirichlet(", "grouped_dirichlet(")
            assert c.partition == expected
    first, *rest = runs("fedlc_lt/table3")
    assert first.config.method == "fedavg"
    switches = [
        tuple(run.config.hparams.fedlc_lt[k] for k in ("class_importance", "class_query"))
        for run in rest
    ]
    assert switches == [(False, False), (True, False), (False, True), (True, True)]


def test_fedvls_runs_as_stated():
    mnist = only("fedvls/table1", "method=fedvls,dataset=mnist,beta=0.05")
    assert (mnist.model, mnist.rounds, mnist.local_epochs) == ("mlp", 50, 5)
    assert mnist.partition == "dirichlet(beta=0.05,min_size=256,rounding=published)"
    assert mnist.eval_train_set and mnist.drop_last and not mnist.keep_momentum
    assert mnist.augment == "none"
    assert (mnist.hparams.fedvls.lam, mnist.weight_decay) == (0.1, 1e-5)
    c100 = only("fedvls/table1", "method=fedvls,dataset=cifar100,beta=0.5")
    assert (c100.rounds, c100.local_epochs, c100.weight_decay) == (100, 10, 1e-4)
    assert (c100.hparams.fedvls.lam, c100.augment) == (0.5, "autoaugment")
    assert only("fedvls/table1", "method=fedavg,dataset=mnist,beta=0.5").keep_momentum
    rs = only("fedvls/table2", "method=fedrs,dataset=cifar10")
    assert rs.hparams.fedrs.alpha == 0.7
    off = only("fedvls/table5", "l_dis=0,l_logit=0,dataset=cifar10")
    assert (off.hparams.fedvls.lam, off.hparams.fedvls.logit_weight) == (0.0, 0.0)
    assert only("fedvls/table4", "lambda=0.25,dataset=cifar10").hparams.fedvls.lam == 0.25
    combined = {run.config.method for run in runs("fedvls/table6")}
    assert combined == {"fedlc", "fedvls", "fedexp", "fedexp+fedvls", "fedsam", "fedsam+fedvls"}


def test_fedlf_runs_as_stated():
    config = only("fedlf/table4", "method=fedlf")
    assert config.partition == "longtail(if=10)+grouped_dirichlet(alpha=0.1)"
    assert config.group_thresholds == (1500, 600)
    config = only("fedlf/table1", "method=fedlf,dataset=cifar100,if=50")
    assert config.group_thresholds == (200, 20)
    assert (config.batch_size, config.client_lr, config.local_epochs) == (32, 0.1, 5)
    config = only("fedlf/table3", "l_c=1,l_d=0,if=50")
    assert (config.hparams.fedlf.lam, config.hparams.fedlf.gamma) == (0.01, 0.0)
    for run in runs("fedlf/table1"):
        server = run.config.server_data
        assert (server.labelled > 0) == (run.config.method == "fedic")


def test_fedgr_runs_as_stated():
    config = only("fedgr/table3", "method=fedgr,labels=3")
    assert (config.num_clients, config.participation, config.rounds) == (100, 0.1, 1000)
    assert (config.client_lr, config.weight_decay, config.eval_every) == (0.1, 5e-4, 1)
    assert (config.local_epochs, config.clip_norm) == (4, 100.0)
    config = only("fedgr/table5", "gravitation_regularizer=0,dataset=cifar10")
    assert (config.hparams.fedgr.lam, config.hparams.fedgr.unbalanced) == (0.0, True)


def test_a_bare_value_continues_the_key_before_it():
    assert selection.parse("dataset=mnist,method=fedavg, fedvls") == {
        "dataset": ("mnist",),
        "method": ("fedavg", "fedvls"),
    }
    assert selection.parse("partition=dirichlet(beta=0.1),synthetic(0,0)") == {
        "partition": ("dirichlet(beta=0.1)", "synthetic(0,0)")
    }
    assert selection.parse("") == {}


@pytest.mark.parametrize("text", ["fedavg", "method=", "=x", "method=(fedavg"])
def test_a_selection_that_cannot_be_read_is_one_sentence(text):
    with pytest.raises(ValueError, match="only="):
        selection.parse(text)


def test_selection_takes_the_papers_names_and_ours():
    found = runs("fedlf/table1")
    assert selection.select(found, {"dataset": ["cifar10"]}) == selection.select(
        found, {"dataset": ["cifar10_lt"]}
    )
    assert len(selection.select(found, {"if": ["100.0"]})) == 16
    with pytest.raises(ValueError, match=r"'metod' is unknown; .*Did you mean 'method'"):
        selection.select(found, {"metod": ["fedlf"]})
    with pytest.raises(ValueError, match=r"'fedlv' is unknown; .*Did you mean 'fedlf'"):
        selection.select(found, {"method": ["fedlv"]})
    with pytest.raises(ValueError, match="no cell"):
        selection.select(runs("fedlc/table2"), {"dataset": ["cifar10"], "alpha": ["80"]})


def test_one_cell_is_chosen_after_the_colon():
    get_config = papers.paper("fedvls").get_config
    config = get_config("table1,method=fedvls,dataset=mnist,partition=dirichlet(beta=0.05)")
    assert (config.method, config.rounds) == ("fedvls", 50)
    config = get_config("table1,smoke,method=moon,dataset=cifar100")
    assert (config.method, config.dataset.name, config.rounds) == ("moon", "cifar100", 2)
    config = get_config("table1,cpu,method=moon,dataset=cifar100")
    assert (config.model, config.rounds, config.local_epochs) == ("simple_cnn", 100, 2)
    assert get_config("figure2,smoke").method == "fedlc"
    assert quickstart.get_config("smoke").rounds == 2


def test_a_configuration_needs_a_table_or_figure_and_known_words():
    get_config = papers.paper("fedlc").get_config
    for arg, words in (
        ("", "table or figure"),
        ("table11", "Did you mean 'table1'"),
        ("table1,variant=momentun", "Did you mean 'momentum'"),
        ("table1,metod=fedlc", "Did you mean 'method'"),
    ):
        with pytest.raises(ValueError, match=words):
            get_config(arg)


def test_variants_change_the_recipe_and_the_name_of_the_run(tmp_path):
    get_config = papers.paper("fedlc").get_config
    assert get_config("table1,method=fedlc,variant=momentum").momentum == 0.9
    assert get_config("table1,method=fedlc,variant=vacant").hparams.fedlc.min_count == 1.0
    config = get_config("table1,method=fedlc,variant=uniform")
    assert config.method == "fedlc+fedavg" and config.hparams.fedavg.uniform_weights
    check(config)
    options = {"only": "method=fedlc,dataset=cifar10,beta=0.1", "scale": "cpu"}
    (plain,) = cells.plan("fedlc/table1", tmp_path, **options)
    (varied,) = cells.plan("fedlc/table1", tmp_path, variant="momentum", **options)
    assert varied.directory != plain.directory
    assert varied.scale == "cpu variant=momentum"
    assert "--scale=cpu --variant=momentum" in cells.command(varied.name, varied.scale)


def test_a_name_says_what_is_computed_and_not_where():
    config = papers.paper("fedlc").get_config("table4,method=fedlc")
    name = selection.Run(config, ()).name
    config.dataset.data_dir, config.figures, config.num_devices = "/data", False, 2
    config.hparams.fedrs.alpha = 0.9
    assert selection.Run(config, ()).name == name
    config.hparams.fedlc.tau = 0.5
    assert selection.Run(config, ()).name != name


def test_a_table_says_where_its_recipe_comes_from():
    paper = papers.paper("fedlc")
    rows = [row for row in printed.load("fedlc/table1") if row.column.startswith("cifar10")]
    paper_, code, here, *independent = cells.provenance("fedlc/table1", rows)
    assert paper_.startswith("P, from the paper: num_clients=20") and "rounds=400" in paper_
    assert "300" not in paper_  # The rounds of Synthetic belong to another table.
    assert "model=fedlc_cnn (CIFAR-10, CIFAR-100)" in code
    assert "local_epochs=1" in here and "clip_norm=10 (SCAFFOLD)" in here
    assert len(independent) == len(paper.independent)


def test_a_smoke_run_keeps_what_the_figure_varies(tmp_path):
    assert len(cells.plan("fedvls/figure4", tmp_path, scale="smoke")) == 4
    plan = cells.plan("fedvls/figure4", tmp_path, scale="smoke", only="method=fedavg,fedvls")
    varied = {(c.config.participation, c.config.local_steps, c.config.num_clients) for c in plan}
    assert varied == {(0.5, 20, 10), (1.0, 20, 10), (1.0, 40, 10), (1.0, 20, 30)}
    assert {cell.config.method for cell in plan} == {"fedavg", "fedvls"}
    plan = cells.plan("fedvls/figure4", tmp_path, scale="smoke", only="method=fedrs")
    assert {cell.config.method for cell in plan} == {"fedrs"}


def test_fields_of_a_figure_select_its_runs():
    found = runs("fedgr/figure4")
    (run,) = selection.select(found, selection.parse("dataset=cifar10,labels=3,lam=0.5"))
    assert run.config.hparams.fedgr.lam == 0.5
    assert len(selection.select(found, selection.parse("x=0.9"))) == 4


def test_the_partition_that_fedvls_prints_is_that_of_its_text():
    spec = next(s.row.partition for s in figure("fedvls/figure1").shown if s.row.method == "fedvls")
    labels = np.repeat(np.arange(10), 5000)
    counts = partition(spec, labels, num_clients=10, num_classes=10, seed=0).class_counts
    assert counts.sum() == 50_000
    # The classes that the text calls vacant and rare on the client it shows.
    assert np.flatnonzero(counts[0] == 0).tolist() == [0, 1, 2, 4, 6, 7]
    assert counts[0, 3] == 141
