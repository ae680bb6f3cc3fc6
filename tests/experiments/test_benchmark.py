import itertools
import time

import jax
import jax.numpy as jnp
import pytest

from experiments.bench import startup, turns
from experiments.bench.variants import relative
from experiments.bench.workloads import WORKLOADS, Workload, make_config
from fedjax_skew import models


class Fake:
    """Uses 100 samples a round, each of which takes the next of some times."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.rounds = clock, itertools.cycle(seconds), 0

    def round(self):
        self.clock[0] += next(self.seconds)
        self.rounds += 1
        return 100


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(turns.time, "perf_counter", lambda: now[0])
    return now


def test_the_first_turn_of_every_contender_warms_up(clock):
    contenders = {"quick": Fake(clock, [50.0, 1.0, 2.0, 4.0]), "slow": Fake(clock, [9.0, 10.0])}
    speeds = turns.take_turns(contenders, 3)
    assert speeds["quick"] == (50.0, 25.0, 100.0)
    assert [contender.rounds for contender in contenders.values()] == [4, 4]


def test_turns_that_differ_by_more_than_two_are_reported(clock, capsys):
    turns.warn("steady", turns.Speed(10.0, 8.0, 12.0))
    assert not capsys.readouterr().out
    turns.warn("wild", turns.Speed(10.0, 5.0, 12.0))
    assert "wild range from 5 to 12" in capsys.readouterr().out


def test_every_workload_is_a_valid_configuration_of_a_known_model():
    for workload in WORKLOADS.values():
        assert make_config(workload, {}).model in models.names()


def test_the_pytorch_twins_have_the_parameters_of_the_models():
    pytest.importorskip("torch")
    from experiments.bench.torch_peer import make_module

    for workload in WORKLOADS.values():
        name = workload.changes["model"]
        model = models.build(name, 10)
        x = jnp.zeros((1, *(workload.shape or (60,))))
        shapes = jax.eval_shape(lambda m=model, x=x: m.init(jax.random.key(0), x, train=False))
        expected = sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))
        assert sum(p.numel() for p in make_module(name).parameters()) == expected
    with pytest.raises(ValueError, match="mobilenet_v2"):
        make_module("mobilenet_v2")


def test_a_method_is_measured_relative_to_fedavg():
    tiny = Workload(
        "tiny", (4, 4, 1), 600, {"model": "logistic", "partition": "iid", "num_clients": 2}
    )
    (row,) = relative(tiny, {"fedprox": {"method": "fedprox"}}, 1)
    assert row["variant"] == "fedprox"
    assert row["relative_time"] > 0
    assert row["memory_mb"] > 0


def test_the_steps_before_the_first_round_add_up(monkeypatch):
    tiny = Workload("tiny", (4, 4, 1), 40, {"model": "mlp", "num_clients": 2, "partition": "iid"})
    monkeypatch.setitem(WORKLOADS, "tiny", tiny)
    monkeypatch.setattr(startup.app, "cache_programs", lambda: None)
    began = time.time()
    steps = startup.main("tiny", began)
    assert min(steps.values()) > 0
    assert sum(steps.values()) <= time.time() - began + 1e-6
