"""Points of a sweep: parsed from text, checked, combined or drawn."""

import math

import pytest

from experiments import grid
from fedjax_skew.config import default_config


def test_points_are_all_combinations_in_the_order_of_the_grid():
    axes = grid.parse("client_lr=0.1, 0.2; batch_size=8,16")
    assert axes == {"client_lr": (0.1, 0.2), "batch_size": (8, 16)}
    points = grid.points(axes, ["fedavg"])
    assert [(p["client_lr"], p["batch_size"]) for p in points] == [
        (0.1, 8),
        (0.1, 16),
        (0.2, 8),
        (0.2, 16),
    ]


def test_values_may_have_brackets_and_tuples():
    axes = grid.parse("partition=dirichlet(beta=0.1,min_size=4),iid; lr_milestones=(0.5,0.75)")
    assert axes["partition"] == ("dirichlet(beta=0.1,min_size=4)", "iid")
    assert axes["lr_milestones"] == ((0.5, 0.75),)


def test_a_method_has_points_for_its_own_hyperparameters_only():
    axes = grid.parse("hparams.fedlc.tau=0.5,1; client_lr=0.1")
    points = grid.points(axes, ["fedavg", "fedlc", "fedlc+scaffold"])
    taus = [(p["method"], p.get("hparams.fedlc.tau")) for p in points]
    assert taus == [
        ("fedavg", None),
        ("fedlc", 0.5),
        ("fedlc", 1.0),
        ("fedlc+scaffold", 0.5),
        ("fedlc+scaffold", 1.0),
    ]
    config = grid.configure(default_config(), points[2])
    assert (config.method, config.hparams.fedlc.tau, config.client_lr) == ("fedlc", 1.0, 0.1)


def test_more_random_points_begin_with_fewer_and_respect_bounds():
    axes = grid.parse("client_lr=log_uniform(0.001, 1); batch_size=uniform(8, 64); momentum=0,0.9")
    few = grid.points(axes, ["fedavg"], random=3)
    many = grid.points(axes, ["fedavg"], random=40)
    assert few == many[:3] and len(many) == 40
    assert grid.points(axes, ["fedavg"], random=3, seed=1) != few
    assert all(0.001 <= p["client_lr"] <= 1 and 8 <= p["batch_size"] <= 64 for p in many)
    assert all(isinstance(p["batch_size"], int) for p in many)
    middle = sum(p["client_lr"] < math.sqrt(0.001) for p in many)
    assert 10 <= middle <= 30  # Half of the draws on a logarithmic scale.


def test_random_points_are_different_and_end_with_the_grid():
    assert len(grid.points(grid.parse("momentum=0,0.9"), ["fedavg"], random=10)) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client_lr", "must read like"),
        ("client_lr=", "must read like"),
        ("client_lrr=0.1", "client_lr"),
        ("client_lr=0.1;client_lr=0.2", "twice"),
        ("client_lr=fast", "client_lr='fast'"),
        ("client_lr=-1", "client_lr=-1"),
        ("batch_size=1.5", "batch_size='1.5'"),
        ("hparams.fedlc.tauu=1", "tau"),
        ("hparams.nothing.tau=1", "method='nothing'"),
        ("hparams.fedlc=1", "hparams.fedlc"),
        ("num_devices=1,2", "does not change results"),
        ("client_lr=uniform(1, 0.1)", "empty"),
        ("client_lr=log_uniform(0, 1)", "low"),
        ("momentum=uniform(0, 2)", "momentum=2"),
        ("client_lr=uniform(1)", "high"),
        ("partition=iid(", "bracket"),
    ],
)
def test_a_wrong_grid_is_one_sentence(text, words):
    with pytest.raises(ValueError) as error:
        grid.parse(text)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_ranges_need_random_points_and_fields_need_a_method_that_uses_them():
    with pytest.raises(ValueError, match="--random"):
        grid.points(grid.parse("client_lr=uniform(0.1,1)"), ["fedavg"])
    with pytest.raises(ValueError, match="no method of the sweep uses"):
        grid.points(grid.parse("hparams.fedlc.tau=1,2"), ["fedavg"])
