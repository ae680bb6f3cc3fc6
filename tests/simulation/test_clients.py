"""The table of clients: their data, their rounds, their accuracy."""

import csv
import signal

import numpy as np
import pytest

import fedjax_skew
from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.runs import rundir, store
from fedjax_skew.runs.train import Interrupted, train_and_evaluate
from fedjax_skew.simulation import clients


def report(cohort, norms):
    fields = dict.fromkeys(RoundReport._fields)
    return RoundReport(**{**fields, "cohort": np.array(cohort), "update_norms": np.array(norms)})


def test_the_log_counts_rounds_and_keeps_the_last_norm():
    log = clients.empty_log(2, 3)
    # Two rounds of two seeds: client 1 of seed 0 drops out of the second, nobody is left to ask.
    log = log.after(
        report([[[0, 1], [2, 1]], [[1, -1], [2, 0]]], [[[1, 2], [3, 4]], [[-1, -1], [5, 6]]])
    )
    np.testing.assert_array_equal(log.drawn, [[1, 2, 0], [1, 1, 2]])
    np.testing.assert_array_equal(log.answered, [[1, 1, 0], [1, 1, 2]])
    np.testing.assert_array_equal(log.update_norm, [[1, 2, np.nan], [6, 4, 5]])
    again = clients.log_from(
        {name: np.where(np.isnan(t), None, t).tolist() for name, t in log._asdict().items()}
    )
    for a, b in zip(log, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert clients.empty_log(2, clients.MOST_ROWS) is None


def test_the_table_matches_the_partition_and_the_confusion_matrix(tiny_config, blobs):
    config = tiny_config(method="fedper", participation=0.5, rounds=4, num_seeds=2, dropout=0.2)
    config.num_personal_eval_clients = 2
    result = fedjax_skew.simulate(config, dataset=blobs)
    table = {name: column.reshape(2, 6) for name, column in result.clients.items()}
    assert list(table) == list(clients.COLUMNS)
    np.testing.assert_array_equal(table["seed"], [[0] * 6, [1] * 6])
    assert table["samples"].sum(1).tolist() == [240, 240]
    assert (table["drawn"].sum(1) == 4 * 3).all()
    answered = sum(np.array(line["answered"]) for line in result.history)
    np.testing.assert_array_equal(table["answered"].sum(1), answered)
    np.testing.assert_array_equal(np.isnan(table["update_norm"]), table["answered"] == 0)
    # Weighted by all samples, the clients' accuracies are the recalls weighted by class sizes.
    confusion = np.array(result.history[-1]["confusion"])
    recall = np.diagonal(confusion, axis1=1, axis2=2) / confusion.sum(-1)
    mean = (table["global_accuracy"] * table["samples"]).sum(1) / 240
    np.testing.assert_allclose(mean, recall.mean(1), rtol=1e-6)
    assert (~np.isnan(table["own_accuracy"])).sum(1).tolist() == [2, 2]
    known = np.nanmean(table["own_accuracy"], 1)
    np.testing.assert_allclose(known, result.history[-1]["personal_local_accuracy"], rtol=1e-6)


@pytest.fixture
def config(tiny_config):
    return tiny_config(
        participation=0.5,
        rounds=6,
        eval_every=3,
        checkpoint_every=1,
        stragglers=0.3,
        dropout=0.3,
        num_seeds=2,
        save_partition=True,
    )


def test_an_interrupted_run_writes_the_same_table(config, blobs, tmp_path):
    train_and_evaluate(config, tmp_path / "whole", dataset=blobs, progress=False)

    class Stop(fedjax_skew.simulation.callbacks.Callback):
        def on_evaluation(self, line):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        train_and_evaluate(
            config, tmp_path / "cut", dataset=blobs, progress=False, callbacks=[Stop()]
        )
    assert not (tmp_path / "cut" / rundir.CLIENTS).exists()
    train_and_evaluate(config, tmp_path / "cut", dataset=blobs, progress=False)
    whole, cut = ((tmp_path / name / rundir.CLIENTS).read_text() for name in ("whole", "cut"))
    assert whole == cut
    rows = list(csv.DictReader(whole.splitlines()))
    assert len(rows) == 12 and rows[0]["own_accuracy"] == ""
    found = store.read(tmp_path / "cut").clients
    assert found["samples"].sum() == 480 and np.isnan(found["own_accuracy"]).all()


def test_the_exact_partition_is_written_and_gives_the_same_run(config, blobs, tmp_path):
    first = train_and_evaluate(config, tmp_path / "first", dataset=blobs, progress=False)
    config.num_seeds, config.seed = 1, 1
    config.partition = f"file(path={tmp_path / 'first' / 'partition_seed1.npz'})"
    again = train_and_evaluate(config, tmp_path / "again", dataset=blobs, progress=False)
    assert again["partition_hash"] == first["partition_hash"][1:]
    assert again["accuracy"]["last"]["per_seed"] == first["accuracy"]["last"]["per_seed"][1:]


@pytest.mark.parametrize(("value", "written"), [("never", 0), ("evaluation", 2), ("end", 1)])
def test_the_table_is_written_when_it_is_asked_for(
    value, written, config, blobs, tmp_path, monkeypatch
):
    tables = []
    monkeypatch.setattr(rundir, "write_clients", lambda workdir, table: tables.append(table))
    config.clients_csv = value
    train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    assert len(tables) == written
