"""Evaluation of clients: own models and the global one, on the clients' own distributions."""

import numpy as np
import pytest

from fedjax_skew.simulation import columns
from fedjax_skew.simulation.problem import build
from fedjax_skew.simulation.simulate import simulate

CONFUSION = np.array([[8, 2, 0], [0, 6, 4], [1, 1, 8]])  # recall 0.8, 0.6, 0.8


def test_test_samples_are_weighted_by_the_clients_classes():
    counts = np.array([[[10, 0, 0], [1, 3, 0]]])
    made = columns.global_columns(CONFUSION[None], counts)
    each = np.array([0.8, (0.8 + 3 * 0.6) / 4])
    np.testing.assert_allclose(made["global_local_accuracy"], each.mean())
    np.testing.assert_allclose(made["global_local_std"], each.std())
    np.testing.assert_allclose(made["global_local_worst_decile"], each.min())


def test_classes_without_test_samples_are_left_out():
    confusion = CONFUSION.copy()
    confusion[1] = 0
    made = columns.global_columns(confusion[None], np.array([[[5, 5, 0], [0, 7, 0]]]))
    np.testing.assert_allclose(made["global_local_accuracy"], 0.8)


def test_the_worst_decile_is_the_mean_of_the_lowest_tenth():
    values = np.linspace(0, 1, 21)[None]
    made = columns.over_clients("x", np.append(values, np.nan)[None])
    np.testing.assert_allclose(made["x_worst_decile"], values[0, :3].mean())
    np.testing.assert_allclose(made["x_accuracy"], 0.5)


@pytest.fixture(scope="module")
def done(tiny_config, blobs):
    config = tiny_config(method="ditto", rounds=2, client_holdout=0.3, num_seeds=2, model="mlp")
    return simulate(config, dataset=blobs)


def test_own_and_global_models_are_evaluated_on_held_out_samples(done):
    line = done.history[-1]
    for name in ("global_local", "personal_local", "global_holdout", "personal_holdout"):
        for what in ("accuracy", "std", "worst_decile"):
            values = line[f"{name}_{what}"]
            assert len(values) == 2 and all(0 <= v <= 1 for v in values)
            assert f"{name}_{what}" in columns.COLUMNS
            last = done.summary[f"{name}_{what}"]["last"]["per_seed"]
            np.testing.assert_allclose(last, values)
        assert line[f"{name}_worst_decile"][0] <= line[f"{name}_accuracy"][0]


def test_held_out_accuracy_is_that_of_plain_predictions(tiny_config, blobs):
    """The global model of one seed, by its own ``predict`` on every client's held-out samples."""
    config = tiny_config(rounds=1, client_holdout=0.5)
    done = simulate(config, dataset=blobs)
    held = build(config, dataset=blobs).holdouts[0]
    each = []
    for k in range(6):
        ids = held.order[held.offsets[k] : held.offsets[k + 1]]
        guess = done.predict(blobs.x_train[ids]).argmax(-1)
        each.append((guess == blobs.y_train[ids]).mean())
    np.testing.assert_allclose(done.history[-1]["global_holdout_accuracy"], np.mean(each))


def test_clients_train_on_fewer_samples(tiny_config, blobs):
    sizes = [
        simulate(tiny_config(rounds=1, client_holdout=share), dataset=blobs).history[-1]["samples"]
        for share in (0.0, 0.5)
    ]
    assert sizes[0] == 240 and 110 < sizes[1] <= 126


def test_without_personal_clients_there_are_no_columns(tiny_config, blobs):
    config = tiny_config(rounds=1, client_holdout=0.5, num_personal_eval_clients=0)
    line = simulate(config, dataset=blobs).history[-1]
    assert not [name for name in line if name.startswith(("global_", "personal_"))]
