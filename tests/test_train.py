"""A run and its directory: files, resume, refusal, damage, divergence."""

import json
import os
import shutil
import signal

import numpy as np
import pytest

from fedjax_skew import train
from fedjax_skew.core import checkpoint, rundir
from fedjax_skew.methods.base import Method
from fedjax_skew.report.summary import COLUMNS
from fedjax_skew.train import Diverged, Interrupted, train_and_evaluate

TIMES = ("seconds", "wall_seconds", "compile_seconds", "samples_per_second")


def without_times(value):
    return {k: v for k, v in value.items() if k not in TIMES}


def results(workdir):
    lines = [json.loads(text) for text in (workdir / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((workdir / "summary.json").read_text())
    return [without_times(line) for line in lines], without_times(summary)


@pytest.fixture(scope="module")
def config(tiny_config):
    return tiny_config(
        rounds=4,
        num_seeds=2,
        participation=0.5,
        momentum=0.5,
        keep_momentum=True,
        checkpoint_every=1,
    )


@pytest.fixture(scope="module")
def whole(config, blobs, tmp_path_factory):
    """An uninterrupted run with every output switched on."""
    config = config.copy_and_resolve_references()
    config.tensorboard = config.figures = config.eval_train = True
    config.eval_local = 2
    workdir = tmp_path_factory.mktemp("whole")
    train_and_evaluate(config, workdir, dataset=blobs, progress=False)
    return workdir


def test_the_directory_holds_everything(whole):
    names = {p.name for p in whole.iterdir()}
    assert {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "partition.png",
        "tensorboard",
        "checkpoints",
    } <= names
    lines, summary = results(whole)
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert set(lines[0]) <= set(COLUMNS)
    assert len(lines[-1]["accuracy"]) == 2 and np.shape(lines[-1]["confusion"]) == (2, 3, 3)
    assert np.sum(lines[-1]["confusion"][0]) == 90
    assert lines[-1]["local_after_majority"][0] >= lines[0]["local_before_majority"][0]
    for field in (
        "method",
        "dataset",
        "partition",
        "partition_hash",
        "seeds",
        "accuracy",
        "macro_f1",
        "per_class_accuracy",
        "versions",
        "device",
        "train_accuracy",
        "initial_params_hash",
        "final_params_hash",
    ):
        assert field in summary, field
    accuracy = summary["accuracy"]
    for name in ("last", "best", "mean_last_50"):
        assert len(accuracy[name]["per_seed"]) == 2
        np.testing.assert_allclose(accuracy[name]["mean"], np.mean(accuracy[name]["per_seed"]))
    assert accuracy["best"]["mean"] >= accuracy["last"]["mean"] > 0.6


def test_a_finished_run_returns_at_once(whole, config, blobs, monkeypatch):
    monkeypatch.setattr(train._Run, "run", lambda self: pytest.fail("ran again"))
    config = config.copy_and_resolve_references()
    config.tensorboard = config.figures = config.eval_train = True
    again = train_and_evaluate(config, whole, dataset=blobs, progress=False)
    assert again["resumed_finished"] and again["status"] == "finished"


def test_resuming_gives_the_same_numbers(config, blobs, tmp_path):
    train_and_evaluate(config, tmp_path / "a", dataset=blobs, progress=False)
    half = config.copy_and_resolve_references()
    half.rounds = 2
    train_and_evaluate(half, tmp_path / "b", dataset=blobs, progress=False)
    train_and_evaluate(config, tmp_path / "b", dataset=blobs, progress=False)
    assert results(tmp_path / "a") == results(tmp_path / "b")

    # Damage: the newest checkpoint is flipped, the one before it truncated, lines are torn.
    work = tmp_path / "b"
    steps = checkpoint.rounds(work / "checkpoints")
    assert steps == [4, 3]
    files = [p for p in (work / "checkpoints" / "4").rglob("*") if p.is_file()]
    victim = max(files, key=lambda p: p.stat().st_size)
    raw = bytearray(victim.read_bytes())
    raw[len(raw) // 2] ^= 1
    victim.write_bytes(raw)
    (work / "summary.json").unlink()
    with open(work / "metrics.jsonl", "a") as f:
        f.write('{"round": 5, "accur')
    train_and_evaluate(config, work, dataset=blobs, progress=False)
    assert results(tmp_path / "a") == results(work)


def test_a_changed_field_is_refused_with_both_values(whole, config, blobs):
    changed = config.copy_and_resolve_references()
    changed.client_lr = 0.2
    with pytest.raises(ValueError, match=r"client_lr=0\.2 differs from 0\.1"):
        train_and_evaluate(changed, whole, dataset=blobs, progress=False)


def test_a_second_process_is_refused(tmp_path, config, blobs):
    with rundir.owned(tmp_path), pytest.raises(ValueError, match="in use by process"):
        train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)


def test_all_checkpoints_damaged_starts_again(whole, tmp_path):
    shutil.copytree(whole / "checkpoints", tmp_path / "c")
    for seal in (tmp_path / "c").glob("*.json"):
        seal.write_text("{")
    assert checkpoint.restore(tmp_path / "c", lambda round_: None) is None


def test_a_checkpoint_of_another_format_is_refused(whole, tmp_path):
    shutil.copytree(whole / "checkpoints", tmp_path / "c")
    for seal in (tmp_path / "c").glob("*.json"):
        seal.write_text(json.dumps({**json.loads(seal.read_text()), "format": 99}))
    with pytest.raises(ValueError, match=r"has the format 99, but .* reads the format 1"):
        checkpoint.restore(tmp_path / "c", lambda round_: None)


def test_divergence_stops_with_round_clients_and_rate(config, blobs, tmp_path):
    def explode(gradient, params, client):
        import jax
        import jax.numpy as jnp

        bad = jnp.where((client.id == 1) & (client.round >= 1), jnp.inf, 1.0)
        return jax.tree.map(lambda g: g * bad, gradient)

    config = config.copy_and_resolve_references()
    config.participation, config.num_seeds = 1.0, 1
    method = Method("explosive", correct=explode)
    with pytest.raises(Diverged, match=r"explosive is not finite in round 2 .*clients \[1\].*0\.1"):
        train_and_evaluate(config, tmp_path, dataset=blobs, method=method, progress=False)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "diverged"
    config.on_nonfinite = "skip"
    train_and_evaluate(config, tmp_path, dataset=blobs, method=method, progress=False)
    assert json.loads((tmp_path / "summary.json").read_text())["nonfinite_clients"] == 3


def test_sigterm_saves_and_says_how_to_go_on(config, blobs, tmp_path, monkeypatch):
    original = train._Run._evaluate

    def evaluate_then_signal(self, *args):
        original(self, *args)
        if len(self.lines) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(train._Run, "_evaluate", evaluate_then_signal)
    with pytest.raises(Interrupted, match="SIGTERM after round 2 of 4; the same command goes on"):
        train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    assert checkpoint.rounds(tmp_path / "checkpoints")[0] == 2
