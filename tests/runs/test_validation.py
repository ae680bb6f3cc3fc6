"""A validation set is taken from the training set and scored beside the test set."""

import json

import numpy as np

from fedjax_skew.runs.train import train_and_evaluate
from fedjax_skew.simulation import summary


def test_a_validation_set_is_scored_beside_the_test_set(tmp_path, tiny_config, blobs):
    config = tiny_config(rounds=2, num_seeds=2, dataset__validation=0.25, eval_train_set=True)
    result = train_and_evaluate(config, tmp_path, dataset=blobs, progress=False)
    lines = [json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    # 60 of 240 samples: accuracies are multiples of 1/60, those of the training set of 1/180.
    for name, size in (("validation", 60), ("train", 180)):
        correct = np.array(lines[-1][f"{name}_accuracy"]) * size
        np.testing.assert_allclose(correct, correct.round(), atol=1e-4)
    assert result["validation_accuracy"]["last"]["per_seed"] == lines[-1]["validation_accuracy"]
    assert len(result["accuracy"]["at_best_validation"]["per_seed"]) == 2


def test_the_round_is_chosen_on_the_validation_set():
    lines = [
        {"round": 1, "accuracy": [0.9, 0.1], "validation_accuracy": [0.3, None]},
        {"round": 2, "accuracy": [0.5, 0.2], "validation_accuracy": [0.6, 0.4]},
        {"round": 3, "accuracy": [0.7, 0.3], "validation_accuracy": [0.6, 0.1]},
    ]
    found = summary.curve_summary(lines, "accuracy")["at_best_validation"]
    assert found["per_seed"] == [0.5, 0.2]
    assert found["mean"] == 0.35
