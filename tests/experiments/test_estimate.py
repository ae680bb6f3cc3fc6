"""Estimates of cost, from traced programs."""

import json

import jax
import numpy as np
import pytest

from experiments import cells, dry_run, estimate, printed, speed
from fedjax_skew.config import default_config
from tests.experiments.test_cells import finish


def test_the_models_forward_pass_is_the_known_number():
    forward, params, _ = estimate._model("mlp", (28, 28, 1), 10)
    weights = 784 * 200 + 200 * 200 + 200 * 10
    assert params == 4 * (weights + 410)
    assert forward == pytest.approx(2 * weights, rel=0.02)


def test_a_method_costs_what_it_adds(tmp_path):
    only = "dataset=mnist,beta=0.05,method=fedavg,fedsam,moon"
    fedavg, moon, fedsam = (
        estimate.cost(cell.config) for cell in cells.plan("fedvls/table1", tmp_path, only=only)
    )
    assert fedsam.flops == pytest.approx(2 * fedavg.flops, rel=0.1)
    assert 1.4 < moon.flops / fedavg.flops < 2
    assert moon.memory > fedavg.memory  # every client keeps its last model


def test_data_that_is_not_registered_is_measured_itself(tmp_path):
    config = default_config()
    config.dataset.name, config.dataset.path = "npz", str(tmp_path / "a.npz")
    x, y = np.zeros((12, 5, 5, 3), np.uint8), np.arange(12) % 4
    np.savez(config.dataset.path, x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    assert estimate.size(config) == (12, 4, (5, 5, 3), 4, 1)
    config.dataset.path = ""
    with pytest.raises(ValueError, match=r"dataset\.path"):
        estimate.cost(config)


def test_registered_data_is_costed_without_being_there():
    config = default_config()
    config.dataset.name, config.dataset.image_size = "tiny_imagenet", 32
    assert estimate.size(config) == (100_000, 10_000, (32, 32, 3), 200, 1)
    config.dataset.name, config.dataset.image_size = "synthetic(1,1)", 0
    assert estimate.size(config) == (75_000, 8_500, (60,), 10, 4)


def test_a_long_tail_leaves_fewer_samples():
    share = estimate._long_tail_share("longtail(if=100)+dirichlet(alpha=0.4)", 10)
    assert share == pytest.approx(0.248, abs=0.001)
    assert estimate._long_tail_share("iid", 10) == 1.0


def test_a_dry_run_lists_states_costs_and_what_is_smaller(tmp_path):
    only = "method=fedavg,partition=synthetic(1,1)"
    chosen = cells.plan("fedlc/table4", tmp_path, only=only, rounds=5)
    text = dry_run.describe("FedLC Table 4", chosen)
    assert "FedLC Table 4: 1 cells, 0 finished, 1 to run." in text
    assert "rounds: 5 instead of 300." in text
    assert "timed now" in text


def test_a_finished_run_says_how_fast_its_model_trains(tmp_path):
    only = "method=fedavg,fedprox,partition=synthetic(1,1)"
    chosen = cells.plan("fedlc/table4", tmp_path, only=only, rounds=5, seeds=1)
    finish(chosen[0], [0.5])
    config = {"kind": jax.devices()[0].device_kind}
    summary = json.loads((chosen[0].directory / "summary.json").read_text())
    (chosen[0].directory / "summary.json").write_text(json.dumps(summary | {"device": config}))
    text = dry_run.describe("FedLC Table 4", chosen)
    assert "finished runs of the same model (logistic)" in text
    # FedProx costs nearly as much as FedAvg, which took 36 seconds.
    (line,) = [line for line in text.splitlines() if "fedprox" in line]
    assert 30 <= float(line.split()[4]) <= 45


def test_a_model_is_timed_once():
    config = default_config()
    config.batch_size = 4
    first = speed.measure(config)
    config.rounds, config.method = 7, "fedlc"
    assert speed.measure(config) is first
    assert first.flops > 0 and first.compile_seconds > 0


def test_the_list_has_a_command_for_every_table():
    text = dry_run.listing()
    for table in printed.table_names():
        assert f"--table={table} --workdir=" in text


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s"), (90, "1.5 min"), (7200, "2.0 h"), (200_000, "2.3 d")]
)
def test_durations_are_readable(seconds, words):
    assert dry_run.duration(seconds) == words


def test_work_on_the_server_grows_with_its_data(tmp_path):
    only = "dataset=cifar10,method=fedavg,fedbe,partition=longtail(if=100)+dirichlet(alpha=0.4)"
    plain, fedbe = (cell.config for cell in cells.plan("fedlc_lt/table1", tmp_path, only=only))
    base = estimate.cost(plain).flops
    work = estimate.cost(fedbe).flops - base
    fedbe.server_data.labelled *= 2
    assert estimate.cost(fedbe).flops - base == pytest.approx(2 * work, rel=0.1)
    # 20 epochs on 2,500 samples, compared with 10 batches of 64 samples of each of 8 clients.
    assert work / base > 20 * 2500 / (8 * 10 * 64)
