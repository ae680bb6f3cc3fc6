"""Measured numbers in files and in stores."""

import json

import numpy as np
import pytest

from experiments import cells, claims, figure_numbers, values
from experiments.values import Value
from tests.experiments.test_cells import finish


def test_values_survive_a_file(tmp_path):
    path = tmp_path / "runs.csv"
    found = [
        Value("fedlc/table1", "fedavg", "cifar10 dirichlet(beta=0.1)", "cpu", 1, 48.125),
        Value("fedlc/table1", "fedavg", "b", "cpu", 0, 50.0, 50.0, 51.5, 49.0, 49.5, "mlp", 9),
    ]
    values.write(path, found)
    assert values.read(path) == sorted(found, key=lambda value: value.key)
    assert values.read(tmp_path / "absent.csv") == []
    newer = [Value("fedlc/table1", "fedavg", "b", "cpu", 0, 60.0)]
    assert {v.value for v in values.merge(found, newer)} == {48.125, 60.0}


def test_a_damaged_line_is_one_sentence(tmp_path):
    path = tmp_path / "runs.csv"
    values.write(path, [Value("fedlc/table1", "fedavg", "b", "cpu", 0, 50.0)])
    path.write_text(path.read_text().replace(",50,", ",many,"))
    with pytest.raises(ValueError, match="line 2"):
        values.read(path)


def test_finished_cells_become_values_under_any_name(tmp_path):
    only = "method=fedavg,fedlc,partition=synthetic(1,1)"
    chosen = cells.plan("fedlc/table4", tmp_path, only=only, seeds=2, rounds=7, scale="cpu")
    for cell in chosen:
        values.note_answers(cell, "python -m something")
    assert values.harvest(tmp_path) == []
    finish(chosen[0], [0.5, 0.7])
    chosen[0].directory.rename(chosen[0].directory.with_name("renamed"))
    found = values.harvest(tmp_path)
    assert [(v.row, v.seed, v.value, v.scale) for v in found] == [
        ("fedavg", 0, 50.0, "full rounds=7"),
        ("fedavg", 1, 70.0, "full rounds=7"),
    ]
    assert found[0].column == "synthetic synthetic(1,1)"
    assert (found[0].model, found[0].rounds, found[0].local) == ("logistic", 7, "5 epochs")
    assert found[0].command == "python -m something"


def test_the_last_quarter_of_a_curve_is_kept(tmp_path):
    only = "method=fedavg,fedlc,partition=synthetic(1,1)"
    first, other = cells.plan("fedlc/table4", tmp_path, only=only, seeds=2, rounds=8)
    for cell in (first, other):
        values.note_answers(cell, "")
    curve = [(r, [0.1 * r, 0.05 * r]) for r in (2, 4, 6, 7, 8)]
    finish(first, [0.8, 0.4], curve=curve)
    found = values.harvest(tmp_path)
    np.testing.assert_allclose([v.late for v in found], [75.0, 37.5])  # rounds 7 and 8
    finish(other, [0.7, 0.3], curve=[])
    assert [v.late for v in values.harvest(tmp_path) if v.row == "fedlc"] == [None, None]


def test_rounds_to_a_target_are_capped_by_fedavgs(tmp_path):
    only = "method=fedavg,fedgr,dataset=fashion_mnist"
    chosen = cells.plan("fedgr/table4", tmp_path, only=only, seeds=1, rounds=4)
    curves = {"fedavg": [(2, [0.5]), (4, [0.6])], "fedgr": [(2, [0.6]), (4, [0.9])]}
    for cell in chosen:
        values.note_answers(cell, "")
        curve = curves[cell.config.method]
        finish(cell, curve[-1][1], curve=curve)
    found = {(v.row, v.column.rpartition(" ")[2]): v.value for v in values.harvest(tmp_path)}
    assert found == {
        ("fedavg", "rounds_to_target"): 4.0,
        ("fedavg", "speedup"): 1.0,
        ("fedgr", "rounds_to_target"): 2.0,
        ("fedgr", "speedup"): 2.0,
    }


def test_a_cell_answers_every_table_that_shares_it(tmp_path):
    only = "method=fedvls,dataset=cifar10,beta=0.05"
    (first,) = cells.plan("fedvls/table1", tmp_path, only=only, scale="cpu", seeds=1)
    (other,) = cells.plan(
        "fedvls/table5", tmp_path, only="l_dis=1,l_logit=1,dataset=cifar10", scale="cpu", seeds=1
    )
    assert first.directory == other.directory
    for cell in (first, other, first):
        values.note_answers(cell, "")
    finish(first, [0.5])
    assert [v.name for v in values.harvest(tmp_path)] == ["fedvls/table1", "fedvls/table5"]


def test_claims_plan_the_cells_they_need_and_skip_what_is_known(tmp_path):
    chosen = claims.choose(claims.CLAIMS, ["fedvls-fedlc-below-fedavg-cifar10"])
    wanted = claims.needed(chosen, str(tmp_path), scale="cpu", seeds=2)
    assert [(c.config.method, c.config.seed) for c in wanted] == [
        ("fedavg", 0),
        ("fedlc", 0),
        ("fedavg", 1),
        ("fedlc", 1),
    ]
    assert {(c.config.model, c.config.rounds) for c in wanted} == {("simple_cnn", 100)}
    column = "cifar10 mobilenet_v2 dirichlet(beta=0.05)"
    known = [Value("fedvls/table1", "fedavg", column, "cpu", seed, 50.0) for seed in (0, 1)]
    left = claims.missing(wanted, known)
    assert [(c.config.method, c.config.seed) for c in left] == [("fedlc", 0), ("fedlc", 1)]
    assert claims.missing(wanted, [v for v in known if v.scale == "full"]) == wanted


def test_a_figure_with_numbers_of_its_own_is_needed_whole(tmp_path):
    chosen = claims.choose(claims.CLAIMS, ["fedvls-vacant-classes-kept"])
    wanted = claims.needed(chosen, str(tmp_path), scale="cpu", seeds=1)
    assert len(wanted) == 4
    known = [Value("fedvls/figure1", "vacant after", "(b) skewed, FedAvg", "cpu", 0, 50.0)]
    assert claims.missing(wanted, known) == []


def test_accuracy_by_role_leaves_out_clients_without_the_role():
    counts = np.array([[[30, 10, 0], [5, 5, 5]]])  # the second client has majority classes only
    confusion = np.zeros((1, 2, 3, 3))
    confusion[0, 0] = [[9, 1, 0], [5, 5, 0], [8, 2, 0]]
    confusion[0, 1] = np.diag([10, 10, 10])
    found = figure_numbers.role_accuracies(confusion, counts)
    np.testing.assert_allclose(found, [[95.0, 50.0, 0.0]])


def test_answers_say_where_a_point_of_a_figure_lies(tmp_path):
    chosen = cells.plan("fedlc_lt/figure4", tmp_path, only="steps=200", seeds=1)
    values.note_answers(chosen[0], "")
    answers = json.loads((chosen[0].directory / values.ANSWERS).read_text())["answers"]
    assert [answer["column"] for answer in answers] == ["distillation steps J x=200"]


def test_a_diverged_run_counts_with_its_last_evaluation(tmp_path):
    only = "method=scaffold,partition=synthetic(1,1)"
    (cell,) = cells.plan("fedlc/table4", tmp_path, only=only, seeds=1, rounds=9)
    values.note_answers(cell, "")
    finish(cell, [0.5], curve=[(3, [0.4]), (6, [0.2])])
    assert [v.note for v in values.harvest(tmp_path)] == [""]
    diverged = {"status": "diverged", "reason": "client 3 is not finite in round 7"}
    (cell.directory / "summary.json").write_text(json.dumps(diverged))
    (value,) = values.harvest(tmp_path)
    assert (value.value, value.best, value.rounds) == (20.0, 40.0, 6)
    assert value.note == "diverged after round 6"


def test_a_dry_run_counts_what_every_claim_lacks(tmp_path):
    chosen = claims.choose(claims.CLAIMS, ["fedvls-fedlc-below-fedavg-cifar10", "fedvls-cifar10"])
    wanted = claims.needed(chosen, str(tmp_path), scale="cpu", seeds=1)
    first, second = claims.lacking(chosen, wanted)
    assert first.split()[:3] == ["7", "cells", "fedvls-cifar10:"]
    assert second.split()[:3] == ["2", "cells", "fedvls-fedlc-below-fedavg-cifar10:"]
