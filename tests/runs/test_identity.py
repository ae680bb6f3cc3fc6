"""A run directory belongs to one identity: data, partition, objects, version, and done rounds."""

import dataclasses
import inspect
import json

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_skew
from fedjax_skew import methods
from fedjax_skew.config import default_config
from fedjax_skew.data.partition import Partition
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods import compose
from fedjax_skew.methods.base import Method
from fedjax_skew.runs import identity
from fedjax_skew.runs.source_hash import source_hash
from fedjax_skew.runs.train import train_and_evaluate

SCALE = 1.0


def tempered(strength=0.5):
    def loss(context):
        logits = context.outputs.logits * strength * SCALE
        return context.mean(cross_entropy(logits, context.batch.labels))

    return Method("tempered", loss=loss)


def edited(strength=0.5):
    def loss(context):
        logits = context.outputs.logits + strength * SCALE
        return context.mean(cross_entropy(logits, context.batch.labels))

    return Method("tempered", loss=loss)


class Net(nn.Module):
    """A hidden layer and a head."""

    width: int = 4

    @nn.compact
    def __call__(self, x, *, train, where=None):
        x = nn.relu(nn.Dense(self.width, name="hidden")(x))
        return nn.Dense(3, name="head")(x), x


def snapshot(workdir):
    return {p: p.read_bytes() for p in sorted(workdir.rglob("*")) if p.is_file()}


def refuses(workdir, match, config, **given):
    """The run is refused with a sentence, and nothing on disk changes."""
    before = snapshot(workdir)
    with pytest.raises(ValueError, match=match):
        train_and_evaluate(config, workdir, progress=False, **given)
    after = snapshot(workdir)
    assert {p: text for p, text in after.items() if p.name != ".lock"} == {
        p: text for p, text in before.items() if p.name != ".lock"
    }


@pytest.fixture(scope="module")
def config(tiny_config):
    return tiny_config(rounds=2)


@pytest.fixture(scope="module")
def given(blobs):
    lists = np.array_split(np.arange(240), 4)
    return {
        "dataset": blobs,
        "partition": Partition.from_indices(lists, blobs.y_train),
        "method": tempered(),
        "module": Net(5),
        "optimizer": optax.sgd(0.1),
    }


@pytest.fixture(scope="module")
def finished(config, given, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("finished")
    train_and_evaluate(config, workdir, progress=False, **given)
    return workdir


def test_the_files_say_what_was_really_run(finished):
    written = json.loads((finished / "config.json").read_text())
    summary = json.loads((finished / "summary.json").read_text())
    for found in (written, summary):
        assert found["method"] == "tempered"
        assert found["hparams"]["tempered"] == {"strength": 0.5}
        assert found["model"] == "Net(width=5)" and found["partition"] == "given"
    assert written["dataset"]["name"] == "blobs" and written["num_clients"] == 4
    assert summary["dataset"] == "blobs" and len(summary["data_hash"]) == 64


def test_the_same_objects_built_again_are_the_same_run(finished, config, given):
    again = {**given, "method": tempered(0.5), "module": Net(5), "optimizer": optax.sgd(0.1)}
    assert train_and_evaluate(config, finished, progress=False, **again)["resumed_finished"]


def test_anything_else_is_refused_finished_or_not(finished, config, given, blobs):
    labels = blobs.y_train.copy()
    labels[[0, 1]] = labels[[1, 0]]
    flipped = dataclasses.replace(blobs, y_train=labels)
    lists = np.array_split(np.arange(240), 4)
    moved = Partition.from_indices([lists[1], lists[0], *lists[2:]], blobs.y_train)
    other = Partition.from_indices(lists, labels)
    longer = config.copy_and_resolve_references()
    longer.rounds = 4
    for change, match in (
        ({"dataset": flipped, "partition": other}, r"data with the hash \w{12}, not \w{12}"),
        ({"partition": moved}, r"partitions with the hashes \[\w{12}\], not"),
        ({"method": tempered(0.25)}, r"hparams\.tempered\.strength=0\.5, not 0\.25"),
        ({"method": edited()}, r"a method whose code and values have the hash"),
        ({"method": None}, r"hparams\.tempered\.strength=0\.5, not None|method='tempered', not"),
        ({"module": Net(6)}, r"model='Net\(width=5\)', not 'Net\(width=6\)'"),
        ({"optimizer": optax.sgd(0.2)}, r"an optimizer whose code and values have the hash"),
        ({"params": {"head": 0}}, "params"),
    ):
        for asked in (config, longer):
            refuses(finished, match, asked, **{**given, **change})


def test_another_table_of_available_clients_is_refused(tiny_config, blobs, tmp_path):
    path = tmp_path / "schedule"
    path.write_text("0 1\n2 3\n")
    config = tiny_config(rounds=2, availability=f"schedule(path={path})")
    train_and_evaluate(config, tmp_path / "run", dataset=blobs, progress=False)
    path.write_text("0 1\n2 4\n")
    refuses(tmp_path / "run", "probabilities of clients with the hash", config, dataset=blobs)


def test_a_global_that_a_method_reads_belongs_to_it(finished, config, given, monkeypatch):
    monkeypatch.setitem(tempered.__globals__, "SCALE", 2.0)
    refuses(finished, "a method whose code", config, **{**given, "method": tempered()})


def test_another_version_is_refused(finished, config, given, monkeypatch):
    monkeypatch.setattr(fedjax_skew, "__version__", "9.9")
    refuses(finished, r"fedjax_skew 0\.[\d.]+, not 9\.9", config, **given)


def test_fewer_rounds_than_done_are_refused(finished, config, given, blobs, tmp_path):
    fewer = config.copy_and_resolve_references()
    fewer.rounds = 1
    refuses(finished, r"rounds=1 is less than the 2 rounds", fewer, **given)
    # The same of a run that was interrupted.
    train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    (tmp_path / "summary.json").unlink()
    refuses(tmp_path, r"rounds=1 is less than the 2 rounds", fewer, dataset=blobs)


def test_rounds_are_fixed_where_a_method_divides_them(tiny_config, blobs, tmp_path):
    hparams = {"fedasam": {"swa": True}}
    config = tiny_config(method="fedasam", hparams=hparams, rounds=1)
    train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    config.rounds = 2
    refuses(tmp_path, r"started with rounds=1, not 2", config, dataset=blobs)


def test_methods_declare_that_they_read_the_number_of_rounds():
    for name in methods.REGISTRY:
        module = inspect.getmodule(inspect.unwrap(methods.builder(name)))
        if "info.rounds" in inspect.getsource(module):
            assert "uses_total_rounds" in inspect.getsource(module), name


def test_a_damaged_line_in_the_middle_is_named_and_can_be_deleted(config, blobs, tmp_path):
    train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    (tmp_path / "summary.json").unlink()
    path = tmp_path / "metrics.jsonl"
    first, second = path.read_text().splitlines(keepends=True)
    path.write_text(first[:40] + "\n" + second)
    refuses(
        tmp_path,
        r"line 1 of '.*metrics\.jsonl' is damaged; delete that line",
        config,
        dataset=blobs,
    )
    path.write_text(second)
    summary = train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    assert summary["accuracy"]["last"]["per_seed"] == json.loads(second)["accuracy"]


def test_a_field_added_later_had_its_default():
    config = default_config().to_dict()
    old = {**config, "dataset": dict(config["dataset"]), "hparams": dict(config["hparams"])}
    del old["batch_norm"], old["dataset"]["image_size"], old["hparams"]["fedavg"]
    assert identity.differences(old, config) == []
    config["batch_norm"] = "group"
    assert identity.differences(old, config) == ["batch_norm"]


def test_hyper_parameters_of_unused_methods_do_not_matter():
    old, new = default_config(), default_config()
    old.method = new.method = "fedlc+fedprox"
    new.hparams.fedrs.alpha = 0.1
    assert identity.differences(old.to_dict(), new.to_dict()) == []
    new.hparams.fedprox.mu = 0.5
    assert identity.differences(old.to_dict(), new.to_dict()) == ["hparams.fedprox.mu"]


def test_the_hash_of_code_ignores_layout_and_sees_values():
    def make(array):
        return lambda x: x + array

    assert source_hash(make(jnp.arange(3))) == source_hash(make(jnp.arange(3)))
    assert source_hash(make(jnp.arange(3))) != source_hash(make(jnp.arange(4)))
    assert source_hash(optax.adam(0.1)) == source_hash(optax.adam(0.1))
    assert source_hash(optax.adam(0.1)) != source_hash(optax.adam(0.1, b1=0.8))
    both = compose([tempered(), Method("plain")])
    assert source_hash(both) != source_hash(compose([tempered(0.1), Method("plain")]))


def test_hyper_parameters_of_a_composed_object_are_found(tiny_config, blobs, tmp_path):
    method = compose([tempered(0.75), methods.build("fedprox")])
    summary = train_and_evaluate(
        tiny_config(rounds=1), tmp_path, dataset=blobs, method=method, progress=False
    )
    assert summary["method"] == "tempered+fedprox"
    assert summary["hparams"]["tempered"] == {"strength": 0.75}
    assert summary["hparams"]["fedprox"]["mu"] > 0
