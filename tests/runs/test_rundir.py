"""What a run directory remembers, and what may differ when it is used again."""

import pytest

from fedjax_skew.config import default_config
from fedjax_skew.runs import rundir


def test_a_field_added_later_had_its_default():
    config = default_config().to_dict()
    old = {**config, "dataset": dict(config["dataset"]), "hparams": dict(config["hparams"])}
    del old["batch_norm"], old["dataset"]["image_size"], old["hparams"]["fedavg"]
    assert rundir.differences(old, config) == []
    config["batch_norm"] = "group"
    assert rundir.differences(old, config) == ["batch_norm"]


def test_hyper_parameters_of_unused_methods_do_not_matter():
    old, new = default_config(), default_config()
    old.method = new.method = "fedlc+fedprox"
    new.hparams.fedrs.alpha = 0.1
    assert rundir.differences(old.to_dict(), new.to_dict()) == []
    new.hparams.fedprox.mu = 0.5
    assert rundir.differences(old.to_dict(), new.to_dict()) == ["hparams.fedprox.mu"]


def test_a_changed_field_names_both_values(tmp_path):
    config = default_config().to_dict()
    rundir.check_config(tmp_path, config)
    rundir.check_config(tmp_path, {**config, "rounds": 7})
    with pytest.raises(ValueError, match=r"batch_size=3 differs from 64"):
        rundir.check_config(tmp_path, {**config, "batch_size": 3})
