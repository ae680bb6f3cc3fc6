"""Bytes in the history of a simulation: per round, so far, through drop-out, phases and resume."""

import numpy as np
import pytest

import fedjax_skew
from fedjax_skew.runs.train import train_and_evaluate

MODEL = 4 * (6 * 3 + 3)  # Logistic regression on the blobs.


def test_fedavg_sends_the_model_to_and_from_every_client_of_a_round(tiny_config, blobs):
    config = tiny_config(participation=0.5, rounds=4, eval_every=2, num_seeds=2)
    result = fedjax_skew.simulate(config, dataset=blobs)
    first, last = result.history
    assert first["bytes_down"] == first["bytes_up"] == [2 * 3 * MODEL] * 2
    assert last["bytes_down"] == last["bytes_up"] == [4 * 3 * MODEL] * 2
    assert last["round_bytes_down"] == last["round_bytes_up"] == [3 * MODEL] * 2
    assert result.summary["bytes_up"] == last["bytes_up"]


def test_who_never_answers_receives_but_sends_nothing(tiny_config, blobs):
    config = tiny_config(rounds=3, dropout=0.5)
    result = fedjax_skew.simulate(config, dataset=blobs)
    assert result.history[-1]["bytes_down"] == [3 * 6 * MODEL]
    answered = sum(line["answered"][0] for line in result.history)
    assert 0 < answered < 3 * 6
    assert result.history[-1]["bytes_up"] == [answered * MODEL]


def test_a_resumed_run_goes_on_counting(tiny_config, blobs, tmp_path):
    changes = {"dropout": 0.3, "participation": 0.5, "eval_every": 2, "checkpoint_every": 1}
    train_and_evaluate(tiny_config(rounds=3, **changes), tmp_path, dataset=blobs, progress=False)
    resumed = train_and_evaluate(
        tiny_config(rounds=6, **changes), tmp_path, dataset=blobs, progress=False
    )
    whole = fedjax_skew.simulate(tiny_config(rounds=6, **changes), dataset=blobs)
    for name in ("bytes_down", "bytes_up"):
        assert resumed[name] == whole.summary[name]
    assert np.all(np.array(resumed["bytes_up"]) < resumed["bytes_down"])


def test_a_later_phase_counts_what_all_clients_receive_once(tiny_config, blobs):
    hparams = {"fedconcat": {"num_clusters": 2, "encoder_rounds": 2, "head_steps": 1}}
    config = tiny_config(method="fedconcat", model="mlp", rounds=4, hparams=hparams)
    history = fedjax_skew.simulate(config, dataset=blobs).history
    down = [line["bytes_down"][0] for line in history]
    encoder = 4 * (6 * 200 + 200 + 200 * 200 + 200)
    head, wide = 4 * (200 * 3 + 3), 4 * (2 * 200 * 3 + 3)
    assert down[1] == 2 * 6 * (encoder + head)
    assert down[2] - down[1] == 6 * (wide + 2 * encoder)
    assert down[3] - down[2] == 6 * wide


@pytest.mark.parametrize("form", ["paper", "code"])
def test_personal_heads_are_counted_only_where_they_leave_their_clients(form, tiny_config, blobs):
    config = tiny_config(method="fedper", model="mlp", rounds=1, hparams={"fedper": {"form": form}})
    sent = 4 * (6 * 200 + 200 + 200 * 200 + 200) + 4 * (200 * 3 + 3) * (form == "code")
    (line,) = fedjax_skew.simulate(config, dataset=blobs).history
    assert line["bytes_up"] == line["bytes_down"] == [6 * sent]
