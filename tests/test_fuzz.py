"""Bad input, systematically: a correct problem or one sentence that names the field.

Nothing is compiled here: ``build`` checks everything first. Some cases go through the real binary.
"""

import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedjax_skew import methods, models
from fedjax_skew.config import FIELDS, default_config
from fedjax_skew.data import augment, partition
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.simulation.problem import build

ROOT = pathlib.Path(__file__).parent.parent
NUMBERS = (math.nan, math.inf, -1, -0.5, 0, 0.5, 3, 1e300, 2**31 - 1, 2**70)
OTHERS = ("", "é\n", None, (), (1,), ("a", "b"), b"x", 1 + 2j, True)


def try_build(fields, dataset=None):
    """Builds a problem from a small configuration; returns the sentence of a refusal, or None."""
    config = default_config()
    small = {"partition": "iid", "num_clients": 6, "rounds": 3, "batch_size": 8, "num_devices": 1}
    with config.ignore_type():
        config.update_from_flattened_dict({**small, **fields})
    try:
        build(config, dataset=dataset)
    except ValueError as error:
        assert "\n" not in str(error)
        return str(error)
    return None


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_takes_or_refuses_every_value(field, blobs):
    for value in (*NUMBERS, *OTHERS):
        said = try_build({field: value}, None if field.startswith("dataset.") else blobs)
        assert said is None or field in said, said


@pytest.mark.parametrize("name", methods.REGISTRY)
def test_hyper_parameters_take_or_refuse_every_value(name):
    for field, default in methods.defaults(name).items():
        accepted = []
        for value in (*NUMBERS, *OTHERS):
            try:
                methods.build(name, {name: {field: value}})
                accepted.append(value)
            except ValueError as error:
                assert f"hparams.{name}." in str(error) and field in str(error), error
                assert "\n" not in str(error)
        refused = {repr(v) for v in (*NUMBERS, *OTHERS)} - {repr(v) for v in accepted}
        assert {"nan", "inf", "None", "()", "1e+300"} <= refused, (field, accepted)
        if field == "temperature":
            assert "0" in refused
        if isinstance(default, bool):
            assert accepted == [True]


WRONG = [  # fields, and what the sentence must say
    ({"local_epochs": 1, "local_steps": 1}, "exactly one"),
    ({"local_epochs": 0, "local_steps": 0}, "exactly one"),
    ({"participation": 1.5}, "at most 1"),
    ({"num_clients": 1000}, "num_clients=1000"),
    ({"local_epochs": 2**31 - 1}, "local_epochs=2147483647"),
    ({"local_epochs": 0, "local_steps": 2**31 - 1}, "at most"),
    ({"partition": "longtail(if=0.5)+iid"}, "if=0.5"),
    ({"partition": "longtail(if=nan)+iid"}, "if=nan"),
    ({"partition": "dirichlet(beta=0)"}, "beta=0"),
    ({"partition": "dirichlet(beta=-1)"}, "beta=-1"),
    ({"partition": "dirichlet(bta=1)"}, "Did you mean 'beta'"),
    ({"partition": "shards(s=0)"}, "s=0"),
    ({"partition": "shards(s=10000)"}, "s="),
    ({"partition": "quantity(alpha=1e9)"}, "alpha='1e9'"),
    ({"partition": "double(labels=9)"}, "labels"),
    ({"partition": "natural"}, "natural"),
    ({"partition": "counts(path=/nowhere.csv)"}, "/nowhere.csv"),
    ({"partition": "dirichlt(beta=1)"}, "Did you mean 'dirichlet'"),
    ({"partition": "iid+iid"}, "partition"),
    ({"method": "fedvag"}, "Did you mean 'fedavg'"),
    ({"method": "fedavg+"}, "method=''"),
    ({"method": "fedlc+fedrs"}, "both define the loss"),
    ({"method": "feddf"}, "server_data.unlabelled"),
    ({"method": "fedic"}, "server_data.labelled"),
    ({"method": "fedntd", "hparams.fedntd.temperature": 0.0}, "hparams.fedntd.temperature"),
    ({"method": "fedconcat", "rounds": 3}, "rounds=3"),
    ({"server_data.labelled": 0.6, "server_data.unlabelled": 0.6}, "below 1"),
    ({"server_data.labelled": 1e-6}, "server_data.labelled"),
    ({"model": "resnet9"}, "Did you mean 'resnet8'"),
    ({"model": "fedavg_cnn"}, "model='fedavg_cnn'"),
    ({"augment": "crop_flip"}, "augment='crop_flip'"),
    ({"augment": "crop"}, "Did you mean 'crop_flip'"),
    ({"lr_milestones": (0.7, 0.5)}, "lr_milestones"),
    ({"group_thresholds": (1, 2)}, "group_thresholds"),
    ({"num_devices": 9}, "num_devices=9"),
]


@pytest.mark.parametrize(("fields", "words"), WRONG, ids=[str(w[0]) for w in WRONG])
def test_inconsistent_fields_are_refused(fields, words, blobs):
    said = try_build(fields, blobs)
    assert said is not None and words in said, said


def test_extremes_that_make_sense_are_problems(blobs):
    assert try_build({"num_clients": 1}, blobs) is None
    assert try_build({"batch_size": 2**20}, blobs) is None
    assert try_build({"batch_size": 2**20, "drop_last": True}, blobs) is None
    assert try_build({"partition": "longtail(if=1)+iid"}, blobs) is None
    assert try_build({"partition": "dirichlet(beta=1e-6,min_size=1)"}, blobs) is None
    one_class = Dataset(
        "one", blobs.x_train, np.zeros(240, np.int32), blobs.x_test, np.zeros(90, np.int32), 1
    )
    assert "at least 2 classes" in try_build({}, one_class)


WORDS = st.one_of(
    st.text(max_size=30),
    st.text("()=,.+'\"0123456789eabdilrt ", max_size=30),
    st.sampled_from([*partition.names(), *methods.REGISTRY, *models.names(), *augment.names()]),
)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["method", "partition", "model", "augment", "dataset.name"]), WORDS)
def test_any_text_is_read_or_refused(blobs, field, text):
    assert try_build({field: text}, None if field == "dataset.name" else blobs) != ""


def save(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (24, 4, 4, 3), dtype=np.uint8),
        "y_train": np.arange(24) % 3,
        "x_test": rng.integers(0, 256, (6, 4, 4, 3), dtype=np.uint8),
        "y_test": np.arange(6) % 3,
        **changes,
    }
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return {"dataset.name": "npz", "dataset.path": str(path), "num_clients": 2}


def test_a_file_may_lack_classes_that_the_configuration_counts(tmp_path):
    fields = save(tmp_path / "a.npz")
    assert try_build(fields) is None
    assert try_build({**fields, "dataset.num_classes": 7}) is None
    said = try_build({**fields, "dataset.num_classes": 2})
    assert "label 2; labels must be in 0..1" in said and "a.npz" in said
    assert try_build(save(tmp_path / "b.npz", y_train=np.arange(24) % 2 * 2)) is None  # no class 1
    one_class = save(tmp_path / "c.npz", y_train=np.zeros(24, int), y_test=np.zeros(6, int))
    assert "at least 2 classes" in try_build(one_class)
    assert "NaN" in try_build(save(tmp_path / "d.npz", x_train=np.full((24, 4), np.nan)))
    assert "Python objects" in try_build(save(tmp_path / "e.npz", y_train=np.array([{}] * 24)))
    assert "lacks y_test" in try_build(save(tmp_path / "f.npz", y_test=None))
    assert "shape" in try_build(save(tmp_path / "g.npz", x_train=np.zeros(24)))


def test_options_belong_to_their_datasets():
    said = try_build({"dataset.num_classes": 3})
    assert "dataset.num_classes=3 does not apply to dataset.name='synthetic(1,1)'" in said
    said = try_build({"dataset.synsets": "n01,n02"})
    assert "dataset.synsets='n01,n02' does not apply" in said


# Loads the packages once and forks for each command line, so that a case costs little.
SERVER = """
import json, os, runpy, sys, tempfile, traceback
import configs.quickstart, experiments.app
for flags in json.load(sys.stdin):
    with tempfile.TemporaryFile("w+") as out:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 2)
            sys.argv = ["experiments.train", *flags]
            try:
                runpy.run_module("experiments.train", run_name="__main__", alter_sys=True)
                code = 0
            except SystemExit as error:
                code = error.code or 0
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        print("RESULT" + json.dumps([code, out.read()]), flush=True)
"""
FLAGS = [  # one command line, and what stderr must say
    (["--config.rounds=abc"], "config.rounds='abc' must be a whole number."),
    (["--config.rounds=1.5"], "config.rounds='1.5' must be a whole number."),
    (["--config.rounds="], "config.rounds='' must be a whole number."),
    (["--config.client_lr=x"], "config.client_lr='x' must be a number."),
    (["--config.client_lr=nan"], "client_lr=nan is not allowed"),
    (["--config.drop_last=maybe"], "config.drop_last='maybe' must be True or False."),
    (["--config.dataset=3"], "config.dataset='3' must be set field by field"),
    (["--config.methd=fedavg"], "Did you mean 'method'?"),
    (["--config.dataset.nam=x"], "Did you mean 'name'?"),
    (["--config.hparams.fedprx.mu=1"], "Did you mean 'fedprox'?"),
    (["--config.rounds.x=3"], "config.rounds is a value; it has no field 'x'."),
    (["--config=nothing.py"], "config='nothing.py' is not a file"),
    (["--config=configs/quickstart.py:smok"], "'smok' is unknown; allowed: smoke."),
    (["--config=README.md"], "README.md"),
    (["--confg.rounds=3"], "confg.rounds"),
    (["extra"], "'extra' is not a flag"),
    (["--config.dataset.name=cifr10"], "Did you mean 'cifar10'?"),
    (["--config.dataset.name=npz"], "dataset.path is empty"),
    (["--config.method=fedntd", "--config.hparams.fedntd.temperature=0"], "temperature=0.0"),
    (["--config.local_steps=3"], "exactly one of the two"),
    (["--workdir="], "workdir is not set"),
    (["--workdir=README.md"], "workdir='README.md' cannot be used"),
    (["--workdir=/proc/none"], "workdir='/proc/none' cannot be used"),
]


def test_the_binary_ends_with_one_sentence_and_code_2(tmp_path):
    cases = [[f"--workdir={tmp_path / 'run'}", *flags] for flags, _ in FLAGS]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    results = [
        json.loads(line.removeprefix("RESULT"))
        for line in done.stdout.splitlines()
        if line.startswith("RESULT")
    ]
    assert len(results) == len(FLAGS), done.stderr
    for (flags, words), (code, said) in zip(FLAGS, results, strict=True):
        assert code == 2 and words in said and said.count("\n") == 1, (flags, code, said)
    assert not (tmp_path / "run").exists()
