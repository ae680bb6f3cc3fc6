"""The training binary refuses to take one run for another, and changes nothing on disk."""

import json

import numpy as np

from tests.stress.processes import TRAIN, finish


def make_file(path, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(60) % 3
    x = rng.normal(size=(60, 4)).astype(np.float32) + labels[:, None]
    np.savez(path, x_train=x, y_train=labels, x_test=x[:30], y_test=labels[:30])
    return [f"--config.dataset.path={path}"]


def test_another_file_fewer_rounds_and_damage_are_refused(tmp_path):
    command = [*TRAIN, "--config.dataset.name=npz", "--config.partition=iid"]
    ours, other = make_file(tmp_path / "a.npz", 0), make_file(tmp_path / "b.npz", 1)
    finish(tmp_path, *command, *ours)
    run = tmp_path / "run"
    before = {path: path.read_bytes() for path in run.glob("*.json*")}

    def refused(*changes):
        said = finish(tmp_path, *command, *changes, code=2)
        assert {path: path.read_bytes() for path in run.glob("*.json*")} == before
        return said

    assert "data with the hash" in refused(*other)
    assert "data with the hash" in refused(*other, "--config.rounds=8")
    assert "rounds=3 is less than the 6 rounds" in refused(*ours, "--config.rounds=3")
    first, *rest = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(first[:50] + "\n" + "".join(rest))
    (run / "summary.json").unlink()
    before = {path: path.read_bytes() for path in run.glob("*.json*")}
    assert "line 1 of" in refused(*ours)
    assert json.loads((run / "config.json").read_text())["dataset"]["name"] == "npz"
