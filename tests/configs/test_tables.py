"""The papers' tables as configurations."""

import importlib
import math
import pathlib
import re

import pytest

from configs import quickstart, tables
from configs.common import finish
from fedjax_skew.config import check
from fedjax_skew.report import reference

ROOT = pathlib.Path(__file__).parent.parent.parent
PAPERS = ("fedlc", "fedlc_lt", "fedvls", "fedlf", "fedgr")


def module(table):
    return importlib.import_module(f"configs.{table.replace('/', '.')}")


@pytest.fixture(scope="module")
def all_runs():
    return {table: module(table).runs() for table in reference.table_names()}


def only(all_runs, table, text):
    found = tables.select(all_runs[table], tables.parse(text))
    assert len(found) == 1
    return found[0].config


def test_there_is_one_file_for_each_of_the_24_tables():
    files = {
        f"{path.parent.name}/{path.stem}" for path in (ROOT / "configs").glob("*/table[0-9].py")
    }
    assert files == set(reference.table_names())
    assert len(files) == 24
    assert all(table == module(table).TABLE for table in files)


@pytest.mark.parametrize("table", reference.table_names())
def test_every_cell_is_a_valid_configuration_at_every_scale(all_runs, table):
    for run in all_runs[table]:
        check(run.config)
        check(finish(run.config, "smoke"))


@pytest.mark.parametrize("table", reference.table_names())
def test_every_printed_number_is_answered_by_exactly_one_run(all_runs, table):
    answered = [
        (row.row, row.column)
        for run in all_runs[table]
        for row in run.rows
        if not math.isnan(row.value)
    ]
    assert sorted(answered) == sorted((row.row, row.column) for row in reference.load(table))
    names = [run.name for run in all_runs[table]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w.=+-]+", name) for name in names)


def test_metrics_of_one_training_share_a_run(all_runs):
    assert len(all_runs["fedlf/table1"]) == 48
    assert {len(run.rows) for run in all_runs["fedlf/table1"]} == {4}
    assert {len(run.rows) for run in all_runs["fedgr/table2"]} == {2}


def test_tables_share_runs_in_one_store(all_runs):
    names = {table: {run.name for run in found} for table, found in all_runs.items()}
    assert names["fedgr/table4"] <= names["fedgr/table2"] | names["fedgr/table3"]
    assert len(names["fedvls/table1"] & names["fedvls/table6"]) == 12


def test_fedlc_runs_as_stated(all_runs):
    config = only(all_runs, "fedlc/table1", "method=scaffold,dataset=svhn,beta=0.05")
    assert (config.dataset.name, config.num_clients, config.rounds) == ("svhn_cropped", 20, 400)
    assert (config.batch_size, config.client_lr, config.weight_decay) == (128, 0.01, 0.0)
    config = only(all_runs, "fedlc/table4", "method=fedlc,partition=synthetic(0.5,0.5)")
    assert (config.dataset.name, config.partition) == ("synthetic(0.5,0.5)", "natural")
    assert (config.num_clients, config.rounds, config.num_seeds) == (100, 300, 5)
    config = only(all_runs, "fedlc/table5", "method=fedavg,dataset=svhn,alpha=5,local_epochs=20")
    assert (config.local_epochs, config.num_clients) == (20, 10)
    config = only(all_runs, "fedlc/table6", "method=fedavg,num_clients=50")
    assert (config.num_clients, config.dataset.name) == (50, "cifar10")


def test_fedlc_lt_runs_as_stated_with_one_partition_for_all_methods(all_runs):
    for table in ("fedlc_lt/table1", "fedlc_lt/table2", "fedlc_lt/table3"):
        for run in all_runs[table]:
            c = run.config
            assert (c.num_clients, c.participation, c.rounds, c.local_steps) == (20, 0.4, 200, 10)
            assert (c.batch_size, c.client_lr) == (64, 0.1)
            assert c.server_data.labelled == 0.05
            assert c.server_data.unlabelled == 0
            expected = run.rows[0].partition.replace("dirichlet(", "grouped_dirichlet(")
            assert c.partition == expected
    first, *rest = all_runs["fedlc_lt/table3"]
    assert first.config.method == "fedavg"
    switches = [
        tuple(run.config.hparams.fedlc_lt[k] for k in ("class_importance", "class_query"))
        for run in rest
    ]
    assert switches == [(False, False), (True, False), (False, True), (True, True)]


def test_fedvls_runs_as_stated(all_runs):
    mnist = only(all_runs, "fedvls/table1", "method=fedvls,dataset=mnist,beta=0.05")
    assert (mnist.model, mnist.rounds, mnist.local_epochs) == ("mlp", 50, 5)
    assert mnist.partition == "dirichlet(beta=0.05,min_size=256,rounding=published)"
    assert mnist.eval_train_set and mnist.drop_last and not mnist.keep_momentum
    assert mnist.augment == "none"
    assert (mnist.hparams.fedvls.lam, mnist.weight_decay) == (0.1, 1e-5)
    c100 = only(all_runs, "fedvls/table1", "method=fedvls,dataset=cifar100,beta=0.5")
    assert (c100.rounds, c100.local_epochs, c100.weight_decay) == (100, 10, 1e-4)
    assert (c100.hparams.fedvls.lam, c100.augment) == (0.5, "autoaugment")
    assert only(all_runs, "fedvls/table1", "method=fedavg,dataset=mnist,beta=0.5").keep_momentum
    rs = only(all_runs, "fedvls/table2", "method=fedrs,dataset=cifar10")
    assert rs.hparams.fedrs.alpha == 0.7
    off = only(all_runs, "fedvls/table5", "l_dis=0,l_logit=0,dataset=cifar10")
    assert (off.hparams.fedvls.lam, off.hparams.fedvls.logit_weight) == (0.0, 0.0)
    assert only(all_runs, "fedvls/table4", "lambda=0.25,dataset=cifar10").hparams.fedvls.lam == 0.25
    combined = {run.config.method for run in all_runs["fedvls/table6"]}
    assert combined == {"fedlc", "fedvls", "fedexp", "fedexp+fedvls", "fedsam", "fedsam+fedvls"}


def test_fedlf_runs_as_stated(all_runs):
    config = only(all_runs, "fedlf/table4", "method=fedlf")
    assert config.partition == "longtail(if=10)+grouped_dirichlet(alpha=0.1)"
    assert config.group_thresholds == (1500, 600)
    config = only(all_runs, "fedlf/table1", "method=fedlf,dataset=cifar100,if=50")
    assert config.group_thresholds == (200, 20)
    assert (config.batch_size, config.client_lr, config.local_epochs) == (32, 0.1, 5)
    config = only(all_runs, "fedlf/table3", "l_c=1,l_d=0,if=50")
    assert (config.hparams.fedlf.lam, config.hparams.fedlf.gamma) == (0.01, 0.0)
    for run in all_runs["fedlf/table1"]:
        server = run.config.server_data
        assert (server.labelled > 0) == (run.config.method == "fedic")


def test_fedgr_runs_as_stated(all_runs):
    config = only(all_runs, "fedgr/table3", "method=fedgr,labels=3")
    assert (config.num_clients, config.participation, config.rounds) == (100, 0.1, 1000)
    assert (config.client_lr, config.weight_decay, config.eval_every) == (0.1, 5e-4, 1)
    config = only(all_runs, "fedgr/table5", "gravitation_regularizer=0,dataset=cifar10")
    assert (config.hparams.fedgr.lam, config.hparams.fedgr.unbalanced) == (0.0, True)


def test_a_bare_value_continues_the_key_before_it():
    assert tables.parse("dataset=mnist,method=fedavg, fedvls") == {
        "dataset": ("mnist",),
        "method": ("fedavg", "fedvls"),
    }
    assert tables.parse("partition=dirichlet(beta=0.1),synthetic(0,0)") == {
        "partition": ("dirichlet(beta=0.1)", "synthetic(0,0)")
    }
    assert tables.parse("") == {}


@pytest.mark.parametrize("text", ["fedavg", "method=", "=x", "method=(fedavg"])
def test_a_selection_that_cannot_be_read_is_one_sentence(text):
    with pytest.raises(ValueError, match="only="):
        tables.parse(text)


def test_selection_takes_the_papers_names_and_ours(all_runs):
    runs = all_runs["fedlf/table1"]
    assert tables.select(runs, {"dataset": ["cifar10"]}) == tables.select(
        runs, {"dataset": ["cifar10_lt"]}
    )
    assert len(tables.select(runs, {"if": ["100.0"]})) == 16
    with pytest.raises(ValueError, match=r"'metod' is unknown; .*Did you mean 'method'"):
        tables.select(runs, {"metod": ["fedlf"]})
    with pytest.raises(ValueError, match=r"'fedlv' is unknown; .*Did you mean 'fedlf'"):
        tables.select(runs, {"method": ["fedlv"]})
    with pytest.raises(ValueError, match="no cell"):
        tables.select(all_runs["fedlc/table2"], {"dataset": ["cifar10"], "alpha": ["80"]})


def test_one_cell_is_chosen_after_the_colon():
    get_config = module("fedvls/table1").get_config
    config = get_config("method=fedvls,dataset=mnist,partition=dirichlet(beta=0.05)")
    assert (config.method, config.rounds) == ("fedvls", 50)
    config = get_config("smoke,method=moon,dataset=cifar100")
    assert (config.method, config.dataset.name, config.rounds) == ("moon", "cifar100", 2)
    assert get_config("smoke").method == "fedavg"
    assert quickstart.get_config("smoke").rounds == 2


def test_a_name_says_what_is_computed_and_not_where():
    config = module("fedlc/table4").get_config("method=fedlc")
    name = tables.Run(config, ()).name
    config.dataset.data_dir, config.figures, config.num_devices = "/data", False, 2
    config.hparams.fedrs.alpha = 0.9
    assert tables.Run(config, ()).name == name
    config.hparams.fedlc.tau = 0.5
    assert tables.Run(config, ()).name != name


@pytest.mark.parametrize("paper", PAPERS)
def test_the_papers_page_has_every_command_and_choice(paper):
    text = " ".join((ROOT / "configs" / paper / "README.md").read_text().split())
    recipe = importlib.import_module(f"configs.{paper}.recipe")
    for table in reference.table_names():
        if table.startswith(f"{paper}/"):
            assert f"--table={table} " in text
    for sentence in recipe.UNSTATED:
        assert sentence in text
