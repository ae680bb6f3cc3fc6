"""``load_model``: the model of a run from its directory alone."""

import shutil

import flax.linen as nn
import numpy as np
import pytest

from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import Method
from fedjax_skew.runs.load import load_model
from fedjax_skew.runs.train import train_and_evaluate


class Net(nn.Module):
    width: int = 4

    @nn.compact
    def __call__(self, x, *, train, where=None):
        x = nn.relu(nn.Dense(self.width, name="hidden")(x))
        return nn.Dense(3, name="head")(x), x


def tempered(strength=0.5):
    def loss(context):
        logits = strength * context.outputs.logits
        return context.mean(cross_entropy(logits, context.batch.labels))

    return Method("tempered", loss=loss)


def accuracy(model, dataset, seed=0):
    return (model.predict(dataset.x_test, seed=seed).argmax(-1) == dataset.y_test).mean()


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "fedavg", "num_seeds": 2, "participation": 0.5},
        {"method": "ccvr", "hparams": {"ccvr": {"samples_per_class": 8}}},
        {"method": "fedexp", "rounds": 2},
        {
            "method": "fedconcat",
            "model": "mlp",
            "hparams": {"fedconcat": {"num_clusters": 2, "encoder_rounds": 2}},
        },
    ],
    ids=lambda changes: changes["method"],
)
def test_the_loaded_model_scores_as_the_last_line_says(tiny_config, blobs, tmp_path, changes):
    summary = train_and_evaluate(tiny_config(**changes), tmp_path, dataset=blobs, progress=False)
    model = load_model(tmp_path)
    assert model.round == summary["rounds"]
    for seed, expected in enumerate(summary["accuracy"]["last"]["per_seed"]):
        np.testing.assert_allclose(accuracy(model, blobs, seed), expected, rtol=1e-6)


def test_an_earlier_phase_is_loaded_with_its_own_model_and_resumed(tiny_config, blobs, tmp_path):
    config = tiny_config(
        method="fedconcat",
        model="mlp",
        eval_every=3,
        keep_checkpoints=9,
        checkpoint_every=1,
        hparams={"fedconcat": {"num_clusters": 2, "encoder_rounds": 2}},
    )
    whole = train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    shutil.rmtree(tmp_path / "checkpoints" / "3")
    for name in ("checkpoints/3.json", "summary.json"):
        (tmp_path / name).unlink()
    model = load_model(tmp_path)
    assert model.round == 2 and model.predict(blobs.x_test).shape == (90, 3)
    resumed = train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    assert resumed["final_params_hash"] == whole["final_params_hash"]


def test_objects_of_the_run_must_be_given_again(tiny_config, blobs, tmp_path):
    given = {"method": tempered(), "module": Net(5)}
    summary = train_and_evaluate(
        tiny_config(rounds=1), tmp_path, dataset=blobs, progress=False, **given
    )
    with pytest.raises(ValueError, match="run with a method object; give it as method="):
        load_model(tmp_path)
    with pytest.raises(ValueError, match="module is not the object that"):
        load_model(tmp_path, method=tempered(), module=Net(6))
    model = load_model(tmp_path, method=tempered(), module=Net(5))
    expected = summary["accuracy"]["last"]["per_seed"][0]
    np.testing.assert_allclose(accuracy(model, blobs), expected, rtol=1e-6)


def test_a_directory_without_a_checkpoint_is_named(tmp_path):
    with pytest.raises(ValueError, match="holds no checkpoint"):
        load_model(tmp_path)
