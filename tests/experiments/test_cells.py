"""Planning cells, scaling them, and rendering whatever is finished."""

import json

import pytest

from experiments import cells, collect
from fedjax_skew.report import render


def finish(cell, accuracy, *, curve=(), rounds=None, **columns):
    """Writes what a finished run leaves behind; accuracies are shares, one a seed."""

    def summary(values):
        return {which: {"per_seed": values} for which in ("last", "best", "mean_last_50")}

    cell.directory.mkdir(parents=True, exist_ok=True)
    (cell.directory / "config.json").write_text(json.dumps(cell.config.to_dict()))
    found = {"status": "finished", "rounds": rounds or cell.config.rounds, "wall_seconds": 36.0}
    found |= {"accuracy": summary(accuracy), "device": {"kind": "cpu"}, "versions": {}}
    found |= {name: summary(values) for name, values in columns.items()}
    (cell.directory / "summary.json").write_text(json.dumps(found))
    lines = [{"round": r, "accuracy": values} for r, values in curve]
    (cell.directory / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def test_seeds_rounds_and_fields_may_be_set(tmp_path):
    only = "method=fedavg,partition=synthetic(1,1)"
    (cell,) = cells.plan(
        "fedlc/table4", tmp_path, only=only, seeds=2, rounds=7, changes=["batch_size=32"]
    )
    assert (cell.config.num_seeds, cell.config.rounds, cell.config.batch_size) == (2, 7, 32)
    assert cells.scaled_sentences([cell]) == (
        "batch_size: 32 instead of 128.",
        "seeds: 2 instead of 5.",
        "rounds: 7 instead of 300.",
    )
    assert cell.directory.parent == tmp_path / "cells"


def test_the_full_scale_has_nothing_to_say(tmp_path):
    chosen = cells.plan("fedgr/table3", tmp_path, data_dir="/data")
    assert cells.scaled_sentences(chosen) == ()
    assert {cell.config.dataset.data_dir for cell in chosen} == {"/data"}


def test_sentences_name_the_data_sets_they_are_about(tmp_path):
    only = "method=fedavg,beta=0.5,dataset=mnist,cifar10"
    chosen = cells.plan("fedvls/table1", tmp_path, only=only, scale="cpu")
    sentences = cells.scaled_sentences(chosen)
    assert "model: simple_cnn instead of mobilenet_v2 (cifar10)." in sentences
    assert not any("mnist" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    "change",
    ["batch_size", "nothing=3", "dataset=x", "batch_size=many", "hparams.fedavg.mu=1", "=4"],
)
def test_a_wrong_change_is_one_sentence(tmp_path, change):
    with pytest.raises(ValueError, match="set="):
        cells.plan("fedgr/table5", tmp_path, changes=[change])


def test_a_hyper_parameter_may_be_set(tmp_path):
    only = "dataset=cifar10,unbalanced_softmax=1,gravitation_regularizer=1"
    (cell,) = cells.plan("fedgr/table5", tmp_path, only=only, changes=["hparams.fedgr.lam=0.25"])
    assert cells.scaled_sentences([cell]) == ("fedgr's lam: 0.25 instead of 0.5.",)


def test_phases_fit_into_fewer_rounds(tmp_path):
    only = "method=fedconcat,dataset=mnist,beta=0.5"
    (cell,) = cells.plan("fedvls/table1", tmp_path, only=only, rounds=20)
    assert cell.config.hparams.fedconcat.encoder_rounds == 10


def test_an_unknown_table_or_scale_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'fedlc/table4'"):
        cells.plan("fedlc/tabel4", tmp_path)
    with pytest.raises(ValueError, match="scale='tiny' is unknown"):
        cells.plan("fedlc/table4", tmp_path, scale="tiny")


def test_the_best_round_is_chosen_on_a_validation_set_where_there_is_one(tmp_path):
    only = "method=fedavg,dataset=cifar10,beta=0.5"
    changes = ["dataset.validation=0.1"]
    for validated, words, number in (
        (False, "chosen on the test set", "90.00"),
        (True, "round with the best validation accuracy", "70.00"),
    ):
        chosen = cells.plan(
            "fedvls/table1", tmp_path, only=only, seeds=1, changes=changes if validated else ()
        )
        finish(chosen[0], [0.9])
        path = chosen[0].directory / "summary.json"
        found = json.loads(path.read_text())
        found["accuracy"]["at_best_validation"] = {"per_seed": [0.7]}
        path.write_text(json.dumps(found))
        (table,) = cells.build_table("fedvls/table1", chosen)
        text = collect.write([table], tmp_path)
        assert words in text and f"| FedAvg | {number}" in text


def test_finished_failed_and_missing_cells_share_a_table(tmp_path):
    only = "method=fedavg,fedrs,fedlc,partition=synthetic(1,1)"
    chosen = cells.plan("fedlc/table4", tmp_path, only=only, seeds=2)
    finish(chosen[0], [0.5, 0.7])
    chosen[1].directory.mkdir(parents=True)
    (chosen[1].directory / "failure.json").write_text('{"reason": "the disk caught fire"}')
    (table,) = cells.build_table("fedlc/table4", chosen)
    text = collect.write([table], tmp_path, "python -m something")
    assert "| FedAvg | 60.00 ± 14.14 (63.11, -3.11) |" in text
    assert "| FedRS | failed [1] (66.39) |" in text
    assert "1. Failed: the disk caught fire" in text
    assert "| FedLC | -- (75.46) |" in text
    assert "seeds: 2 instead of 5." in text
    assert "local\\_epochs=5" in text and "momentum=0" in text
    assert "H, chosen here" in text
    assert "python -m something" in text
    assert (tmp_path / "table.md").read_text() == text
    assert "the disk caught fire" in (tmp_path / "table.csv").read_text()
    assert r"\toprule" in (tmp_path / "table.tex").read_text()


def test_seeds_in_runs_of_their_own_are_one_cell_of_the_table(tmp_path):
    only = "method=fedavg,fedlc,partition=synthetic(1,1)"
    (early,) = cells.plan("fedlc/table4", tmp_path, only=only.replace("fedlc,", ""), seeds=1)
    finish(early, [0.5])
    chosen = cells.plan("fedlc/table4", tmp_path, only=only, seeds=3, split_seeds=True)
    assert [(c.config.method, c.config.seed, c.config.num_seeds) for c in chosen] == [
        (method, seed, 1) for seed in range(3) for method in ("fedavg", "fedlc")
    ]
    assert chosen[0].directory == early.directory  # What is finished is not run again.
    assert "seed=2" in chosen[4].title
    finish(chosen[4], [0.7])
    finish(chosen[1], [0.8])
    chosen[3].directory.mkdir(parents=True)
    (chosen[3].directory / "failure.json").write_text('{"reason": "the disk caught fire"}')
    (table,) = cells.build_table("fedlc/table4", chosen)
    text = render.to_markdown(table)
    assert "| FedAvg | <u>60.00</u> ± 14.14" in text
    assert "| FedLC | **80.00** n=1" in text and "the disk caught fire" in text
    assert "seeds: 3 instead of 5." in text


def test_rounds_to_a_target_compare_the_same_seed(tmp_path):
    only = "method=fedavg,fedgr,dataset=fashion_mnist"
    chosen = cells.plan("fedgr/table4", tmp_path, only=only, seeds=2, rounds=4, split_seeds=True)
    curves = {
        ("fedavg", 0): [(2, [0.5]), (4, [0.5])],
        ("fedavg", 1): [(2, [0.7]), (4, [0.6])],
        ("fedgr", 0): [(1, [0.5]), (2, [0.4]), (4, [0.9])],
        ("fedgr", 1): [(1, [0.1]), (2, [0.8]), (4, [0.9])],
    }
    for cell in chosen:
        curve = curves[cell.config.method, cell.config.seed]
        finish(cell, curve[-1][1], curve=curve)
    (table,) = cells.build_table("fedgr/table4", chosen)
    column = "fashion_mnist double(labels=3) rounds_to_target"
    assert table.cells["fedavg", column].values == (4.0, 4.0)
    assert table.cells["fedgr", column].values == (1.0, 2.0)


def test_results_of_another_configuration_do_not_count(tmp_path):
    only = "method=fedlc,partition=synthetic(1,1)"
    (cell,) = cells.plan("fedlc/table4", tmp_path, only=only)
    finish(cell, [0.5])
    assert cell.record().finished
    config = json.loads((cell.directory / "config.json").read_text())
    config["dataset"]["data_dir"] = "/elsewhere"
    (cell.directory / "config.json").write_text(json.dumps(config))
    assert cell.record().finished
    config["hparams"]["fedlc"]["tau"] = 0.3
    (cell.directory / "config.json").write_text(json.dumps(config))
    assert (cell.record().status, "hparams.fedlc.tau" in cell.record().failure) == ("failed", True)


def test_mnist_is_compared_by_the_training_pool_and_shown_held_out(tmp_path):
    only = "method=fedavg,fedvls,dataset=mnist,beta=0.05"
    chosen = cells.plan("fedvls/table1", tmp_path, only=only, seeds=1)
    finish(chosen[0], [0.90], train_accuracy=[0.95])
    main, second = cells.build_table("fedvls/table1", chosen)
    text = render.to_markdown(main)
    assert "95.00" in text and "(training pool)" in text and "90.00" not in text
    text = render.to_markdown(second)
    assert "90.00" in text and "held-out test set" in text and "95.00" not in text
    both = collect.write([main, second], tmp_path)
    assert both.count("### ") == 2
    assert (tmp_path / "table.csv").read_text().count("paper_reported") == 1


def test_rounds_to_the_accuracy_of_fedavg_come_from_curves(tmp_path):
    only = "method=fedavg,fedgr,fedrs,dataset=fashion_mnist"
    fedavg, fedrs, fedgr = cells.plan("fedgr/table4", tmp_path, only=only, seeds=2, rounds=4)
    finish(fedavg, [0.5, 0.6], curve=[(2, [0.5, 0.7]), (4, [0.5, 0.6])])
    finish(fedgr, [0.9, 0.9], curve=[(1, [0.5, 0.1]), (2, [0.4, 0.8]), (4, [0.9, 0.9])])
    finish(fedrs, [0.4, 0.9], curve=[(2, [0.4, 0.1]), (4, [0.4, 0.9])])
    (table,) = cells.build_table("fedgr/table4", [fedavg, fedrs, fedgr])
    found = {key: cell.values for key, cell in table.cells.items() if cell.values}
    rounds, speed = (f"fashion_mnist double(labels=3) {m}" for m in ("rounds_to_target", "speedup"))
    assert found["fedavg", rounds] == (4.0, 4.0)
    assert found["fedgr", rounds] == (1.0, 2.0)
    assert found["fedgr", speed] == (4.0, 2.0)
    assert found["fedrs", rounds] == (4.0,)
    assert table.cells["fedrs", rounds].notes == (
        "1 of 2 seeds do not reach the target in 4 rounds.",
    )
    (alone,) = cells.build_table("fedgr/table4", [fedgr])
    assert "FedAvg's run is not finished" in alone.cells["fedgr", rounds].failure


def test_a_column_beyond_the_paper_has_no_number_of_it(tmp_path):
    chosen = cells.plan("fedvls/table5", tmp_path, only="dataset=mnist", seeds=1)
    for cell in chosen:
        finish(cell, [0.8], train_accuracy=[0.9])
    main, _ = cells.build_table("fedvls/table5", chosen)
    text = render.to_markdown(main)
    assert "MNIST (training pool, not in the paper)" in text
    assert text.count("90.00") == 4


def test_methods_that_use_server_data_are_marked(tmp_path):
    only = "method=fedavg,feddf,fedlc_lt,dataset=cifar10,if=100"
    chosen = cells.plan("fedlc_lt/table1", tmp_path, only=only)
    (table,) = cells.build_table("fedlc_lt/table1", chosen)
    assert table.row_marks == {
        "feddf": ("Trains on unlabelled data on the server.",),
        "fedlc_lt": ("Trains on labelled data on the server.",),
    }


def test_a_cell_that_fits_a_cpu_as_it_is_keeps_the_papers_scale(tmp_path):
    chosen = cells.plan("fedvls/table1", tmp_path, only="method=fedavg,beta=0.5", scale="cpu")
    scales = {cell.config.dataset.name: cell.scale for cell in chosen}
    assert scales["mnist"] == "full" and scales["cifar10"] == "cpu"


def test_a_smaller_selection_keeps_what_the_store_has_finished(tmp_path):
    def plan(only, seeds=1):
        return cells.plan("fedlc/table4", tmp_path, only=only, seeds=seeds, split_seeds=True)

    everything = plan("partition=synthetic(1,1)", seeds=3)
    done = [c for c in everything if c.config.method in ("fedavg", "fedlc") and c.config.seed < 2]
    for cell in done:
        finish(cell, [0.7])
    chosen = plan("partition=synthetic(1,1),method=fedavg,fedprox")
    shown = cells.with_finished(chosen, everything)
    assert {c.directory for c in shown} == {c.directory for c in [*done, *chosen]}
    (table,) = cells.build_table("fedlc/table4", shown)
    assert [row.key for row in table.rows] == ["fedavg", "fedprox", "fedlc"]
    column = table.columns[0].key
    assert [len(table.cells[r, column].values) for r in ("fedavg", "fedprox", "fedlc")] == [2, 0, 2]


def test_files_are_named_after_what_they_hold():
    assert cells.file_stem("fedlc/table1", []) == "fedlc_table1"
    words = ["cpu", "rounds=3", "partition=dirichlet(beta=0.1)"]
    assert cells.file_stem("fedlc/table1", words) == (
        "fedlc_table1_cpu_rounds=3_partition=dirichlet_beta=0.1_"
    )
