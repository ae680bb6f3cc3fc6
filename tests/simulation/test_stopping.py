"""Signals: how long they wait, and what a slow run has saved when they do not wait."""

import os
import signal
import threading

import jax
import pytest

from fedjax_skew.runs import checkpoint, recorder, train
from fedjax_skew.simulation import stopping, trainer


def test_a_signal_waits_for_a_round_but_not_for_long():
    with stopping.StopSignals(lambda text: None, str) as signals:
        signals._poll(lambda: True, 0.0)
        os.kill(os.getpid(), signal.SIGTERM)
        signals._poll(lambda: True, 0.0)
        rest = iter([False, False, True])
        signals._poll(lambda: next(rest), 60.0)
        for patience in (0.0, 0.05):
            with pytest.raises(stopping.Abandoned):
                signals._poll(lambda: False, patience)


def test_slow_runs_save_after_every_round_unless_that_costs_much(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(recorder.time, "time", lambda: now[0])
    kept = recorder.DirectoryRecorder(tmp_path, 0, 1)

    def save(*args, **kwargs):
        now[0] += 2.0

    monkeypatch.setattr(recorder.checkpoint, "save", save)
    now[0] += 1.0
    assert kept.due(1, slow=True) and not kept.due(1, slow=False)
    kept.save(trainer.Point(None, 1, {}, 0.0, None), None)
    now[0] += 39.0
    assert not kept.due(2, slow=True)  # 2 s of 40 s are a share of 0.05.
    now[0] += 2.0
    assert kept.due(2, slow=True) and not kept.due(2, slow=False)
    now[0] += 20.0
    assert kept.due(2, slow=False)


def test_an_abandoned_round_is_repeated_on_resume(tiny_config, blobs, tmp_path, monkeypatch):
    def run(folder, *callbacks):
        config = tiny_config(rounds=60, eval_every=30)
        options = {"dataset": blobs, "progress": False, "callbacks": callbacks}
        return train.train_and_evaluate(config, folder, **options)

    whole = run(tmp_path / "whole")
    for module in (stopping, trainer):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(trainer, "rounds_per_call", lambda micros: 1)

    class Stop(train.Callback):
        def on_evaluation(self, line):
            if line["round"] == 30:
                threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()

    folder = tmp_path / "run"
    with pytest.raises(train.Interrupted, match="is saved") as error:
        run(folder, Stop())
    saved = checkpoint.newest(folder / "checkpoints")
    assert saved >= 0 and f"round {saved} is saved" in str(error.value)
    assert run(folder)["final_params_hash"] == whole["final_params_hash"]


def test_a_run_whose_method_evaluates_another_model_stops_in_a_sentence(
    tiny_config, blobs, tmp_path, monkeypatch
):
    hparams = {"ccvr": {"samples_per_class": 4}}
    config = tiny_config(method="ccvr", model="mlp", rounds=4, checkpoint_every=2, hparams=hparams)

    class Stop(train.Callback):
        def on_evaluation(self, line):
            if line["round"] == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    def wait(signals, tree):
        if signals.signal:
            raise stopping.Abandoned
        return jax.block_until_ready(tree)

    options = {"dataset": blobs, "progress": False, "callbacks": [Stop()]}
    monkeypatch.setattr(stopping, "PATIENCE_SECONDS", 600.0)
    with pytest.raises(train.Interrupted, match="round 3 is saved"):
        train.train_and_evaluate(config, tmp_path / "patient", **options)
    monkeypatch.setattr(stopping.StopSignals, "rounds", wait)
    with pytest.raises(train.Interrupted, match="round 2 is saved"):
        train.train_and_evaluate(config, tmp_path / "impatient", **options)
