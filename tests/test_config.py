"""One declaration per field: everything that is known about a field follows from it."""

import pytest

from fedjax_skew import config as config_lib
from fedjax_skew.config import FIELDS, Field, check, default_config, flatten, lookup, smoke


@pytest.mark.parametrize("name", FIELDS)
def test_every_default_is_allowed_and_every_field_described(name):
    field = FIELDS[name]
    field.rule.check(name, field.default)
    assert lookup(default_config(), name) == field.default
    assert field.help and "\n" not in field.help
    assert field.help in config_lib.names()[name]


def test_a_new_field_is_one_entry(monkeypatch):
    new = Field(7, config_lib.whole(1, smoke=3), "a field of a test", execution=True)
    monkeypatch.setattr(config_lib, "FIELDS", {**FIELDS, "engine.speed": new})
    config = default_config()
    assert config.engine.speed == 7 and smoke(config).engine.speed == 3
    assert config_lib.may_change("engine.speed", config)
    config.engine.speed = 0
    with pytest.raises(ValueError, match=r"engine\.speed=0 .* from 1"):
        check(config)


def test_a_mistyped_field_is_an_error():
    with pytest.raises(AttributeError, match="num_clients"):
        default_config().num_client = 3


@pytest.mark.parametrize("name", ["method", "batch_size", "seed", "partition", "compute_dtype"])
def test_what_determines_the_parameters_may_not_change_on_resume(name):
    assert not config_lib.may_change(name, default_config())


@pytest.mark.parametrize(
    "name", ["eval_every", "dataset.path", *sorted(config_lib.EXECUTION_FIELDS)]
)
def test_what_does_not_may_change_on_resume(name):
    assert config_lib.may_change(name, default_config())


def test_rounds_may_change_unless_the_learning_rate_depends_on_them():
    config = default_config()
    for schedule, free in {"constant": 1, "exponential": 1, "cosine": 0, "step": 0}.items():
        config.lr_schedule = schedule
        assert config_lib.may_change("rounds", config) == bool(free)


def test_execution_and_paths():
    assert "dataset.data_dir" in config_lib.EXECUTION_FIELDS & config_lib.HOST_FIELDS
    assert "dataset.path" in config_lib.HOST_FIELDS - config_lib.EXECUTION_FIELDS


def test_smoke_shrinks_what_takes_time_and_keeps_the_rest():
    config = default_config()
    config.method, config.rounds, config.local_epochs, config.num_seeds = "fedconcat", 99, 9, 3
    config.num_clients = 50
    small = smoke(config)
    assert (small.rounds, small.local_epochs, small.num_seeds) == (2, 1, 1)
    assert small.participation * 50 == 2
    assert small.hparams.fedconcat.encoder_rounds == 1
    assert small.hparams.feddf.steps == 2
    assert small.batch_size == config.batch_size and config.rounds == 99
    check(small)


def test_flatten_names_every_field_once():
    flat = flatten(default_config())
    assert {name for name in flat if not name.startswith("hparams.")} == set(FIELDS)
    assert flatten(default_config().to_dict()) == flat
