"""A run and its directory: files, resume, refusal, damage, divergence."""

import errno
import json
import os
import pathlib
import shutil
import signal

import numpy as np
import pytest

from experiments import app
from fedjax_skew.methods.base import Method
from fedjax_skew.runs import checkpoint, rundir, train
from fedjax_skew.runs.recorder import DirectoryRecorder
from fedjax_skew.runs.train import Diverged, Interrupted, train_and_evaluate
from fedjax_skew.simulation.columns import COLUMNS

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
    config.loggers, config.eval_train_set = "tensorboard,csv", True
    config.num_local_eval_clients = 2
    workdir = tmp_path_factory.mktemp("whole")
    train_and_evaluate(config, workdir, dataset=blobs, progress=False)
    return workdir


@pytest.fixture(scope="module")
def whole_alone(config, blobs, tmp_path_factory):
    """An uninterrupted run without the extras."""
    workdir = tmp_path_factory.mktemp("alone")
    train_and_evaluate(config, workdir, dataset=blobs, progress=False)
    return workdir


def test_the_directory_holds_everything(whole):
    names = {p.name for p in whole.iterdir()}
    assert {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "partition.csv",
        "clients.csv",
        "tensorboard",
        "metrics.csv",
        "identity.json",
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
        "data_hash",
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
    monkeypatch.setattr(train.Trainer, "run", lambda *args: pytest.fail("ran again"))
    config = config.copy_and_resolve_references()
    config.loggers, config.eval_train_set = "tensorboard,csv", True
    again = train_and_evaluate(config, whole, dataset=blobs, progress=False)
    assert again["resumed_finished"] and again["status"] == "finished"


def test_resuming_gives_the_same_numbers(config, blobs, whole_alone, tmp_path, caplog):
    half = config.copy_and_resolve_references()
    half.rounds = 2
    train_and_evaluate(half, tmp_path / "b", dataset=blobs, progress=False)
    train_and_evaluate(config, tmp_path / "b", dataset=blobs, progress=False)
    assert results(whole_alone) == results(tmp_path / "b")

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
    with caplog.at_level("WARNING"):
        train_and_evaluate(config, work, dataset=blobs, progress=False)
    assert "checkpoints/4 is damaged" in caplog.text and "trying the previous" in caplog.text
    assert results(whole_alone) == results(work)


def test_a_changed_field_is_refused_with_both_values(whole, config, blobs):
    changed = config.copy_and_resolve_references()
    changed.client_lr = 0.2
    with pytest.raises(ValueError, match=r"started with client_lr=0\.1, not 0\.2"):
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
    with pytest.raises(ValueError, match=r"has the format 99, but .* reads the format 2"):
        checkpoint.restore(tmp_path / "c", lambda round_: None)


def test_divergence_stops_with_round_clients_and_rate(config, blobs, tmp_path, capsys):
    def explode(gradient, params, client):
        import jax
        import jax.numpy as jnp

        bad = jnp.where((client.id == 1) & (client.round >= 1), jnp.inf, 1.0)
        return jax.tree.map(lambda g: g * bad, gradient)

    config = config.copy_and_resolve_references()
    config.participation, config.num_seeds = 1.0, 1
    method = Method("explosive", correct_gradient=explode)
    with pytest.raises(Diverged, match=r"explosive is not finite in round 2 .*clients \[1\].*0\.1"):
        train_and_evaluate(config, tmp_path, dataset=blobs, method=method, progress=False)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "diverged"
    config.on_nonfinite = "skip"
    train_and_evaluate(config, tmp_path, dataset=blobs, method=method, progress=False)
    said = capsys.readouterr().out
    assert said.count("explosive is not finite in round 2") == 1
    assert "on_nonfinite='skip' continues and counts such clients" in said
    assert json.loads((tmp_path / "summary.json").read_text())["nonfinite_clients"] == 3


def test_sigterm_saves_and_says_how_to_resume(config, blobs, tmp_path, monkeypatch):
    original = DirectoryRecorder.evaluated

    def evaluated(self, line):
        original(self, line)
        if line["round"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(DirectoryRecorder, "evaluated", evaluated)
    with pytest.raises(Interrupted, match="SIGTERM after round 2 of 4; round 2 is saved"):
        train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    assert checkpoint.rounds(tmp_path / "checkpoints")[0] == 2


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("file", ["metrics.jsonl", "4.json", "summary.json", "config.json"])
def test_a_full_disk_leaves_a_run_that_goes_on(config, blobs, whole_alone, tmp_path, file):
    """The write of one file fails half way; the next command ends with the same numbers."""
    original = open

    def fail(path, mode="r", *args, **kwargs):
        name = pathlib.Path(path).name.removesuffix(".tmp") if isinstance(path, os.PathLike) else ""
        if name != file or not set(mode) & set("wa"):
            return original(path, mode, *args, **kwargs)
        with original(path, mode) as stream:
            stream.write('{"round": 1, "accu')
        raise FULL

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError) as caught:
        patch.setattr(rundir, "open", fail, raising=False)
        train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    assert app.ending(caught.value) == (
        "The disk is full; free some space and run the same command to resume from the newest "
        "checkpoint.",
        app.EXIT_DISK,
    )
    train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    assert results(tmp_path) == results(whole_alone)


def test_endings_have_their_codes():
    orbax = ValueError("RESOURCE_EXHAUSTED: Error writing: No space left on device")
    assert app.ending(orbax)[1] == app.EXIT_DISK
    assert app.ending(RuntimeError("RESOURCE_EXHAUSTED: Out of memory"))[1] == app.EXIT_BAD_INPUT
    assert "MemoryError" in app.ending(MemoryError())[0]
    assert app.ending(Diverged("x")) == ("x", 3)
    assert app.ending(Interrupted("x")) == ("x", 130)
    assert app.ending(KeyboardInterrupt())[1] == 130
    assert app.ending(PermissionError(13, "no", "/x")) == (
        "'/x' cannot be used (no); choose another path.",
        2,
    )
    assert app.ending(ZeroDivisionError()) is None


def test_a_run_directory_that_cannot_be_written_is_refused(config, blobs, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"workdir='.*file/run' cannot be used \(Not a directory"):
        train_and_evaluate(config, tmp_path / "file/run", dataset=blobs, progress=False)
