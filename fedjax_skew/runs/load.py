"""``load_model``: loading of the model of a run directory."""

import pathlib
from typing import Any

import flax.linen as nn
import ml_collections
import numpy as np

import fedjax_skew
from fedjax_skew import methods
from fedjax_skew.config import default_config, flatten, used_hparams
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.engine.mesh import client_mesh
from fedjax_skew.engine.target import Target, platform_of
from fedjax_skew.methods import Method
from fedjax_skew.runs import checkpoint, rundir
from fedjax_skew.runs.source_hash import source_hash
from fedjax_skew.simulation.phases import make_model
from fedjax_skew.simulation.trained import TrainedModel


def load_model(
    workdir: str | pathlib.Path, *, method: Method | None = None, module: nn.Module | None = None
) -> TrainedModel:
    """Loads the model of a finished or interrupted run from its newest checkpoint.

    The dataset is not needed. A method or module that was given to the run as an object must also
    be given here.

    Args:
        workdir: the run directory.
        method: the method object of the run, if it was not one of the registered methods.
        module: the flax module of the run, if it was not one of the registered models.

    Raises:
        ValueError: if the directory holds no checkpoint, or one of another version or object.

    Example:
        >>> model = fedjax_skew.load_model("runs/first")  # doctest: +SKIP
        >>> model.predict(x_test).argmax(-1)  # doctest: +SKIP
    """
    workdir = pathlib.Path(workdir)
    found = rundir.read_json(workdir / rundir.IDENTITY)
    round_ = checkpoint.newest(workdir / rundir.CHECKPOINTS)
    if not found or round_ < 0:
        raise ValueError(f"workdir={str(workdir)!r} holds no checkpoint to load a model from.")
    if found["version"] != fedjax_skew.__version__:
        raise ValueError(
            f"workdir={str(workdir)!r} was written by fedjax_skew {found['version']}, not "
            f"{fedjax_skew.__version__}; load it with that version."
        )
    for name, value in (("method", method), ("module", module)):
        _check_object(workdir, name, found[name], value)
    config = _read_config(workdir, given={"method": method, "model": module})
    method = method or methods.build(config.method, used_hparams(config))
    dataset = _samples_like(config.dataset.name, found["dataset"])
    target = Target(platform_of(client_mesh()))
    model = make_model(config, dataset, method, target, module)
    first = 0
    while method.next_phase is not None and round_ > first + method.next_phase.rounds:
        first += method.next_phase.rounds
        model, method = method.next_phase.model(model), method.next_phase.method
    params, stats, evaluated = checkpoint.restore_model(workdir / rundir.CHECKPOINTS, round_)
    return TrainedModel(
        params=params,
        stats=stats,
        round=round_,
        evaluated=(params, stats) if evaluated is None else evaluated,
        model=model,
        method=method,
        sample_shape=dataset.x_train.shape[1:],
        sample_dtype=str(dataset.x_train.dtype),
    )


def _check_object(workdir: pathlib.Path, name: str, expected: str, value: Any) -> None:
    """Raises if an object differs from that of the run, or if only one of the two is None."""
    if expected and value is None:
        raise ValueError(
            f"workdir={str(workdir)!r} was run with a {name} object; give it as {name}=."
        )
    if value is not None and source_hash(value) != expected:
        raise ValueError(
            f"{name} is not the object that workdir={str(workdir)!r} was run with; its code, its "
            "fields or the values in its closures differ."
        )


def _read_config(workdir: pathlib.Path, given: dict[str, Any]) -> ml_collections.ConfigDict:
    """Returns the configuration of a run; fields replaced by objects keep their defaults."""
    config = default_config()
    known = flatten(config)
    replaced = {name for name, value in given.items() if value is not None}
    for field, value in flatten(rundir.read_json(workdir / rundir.CONFIG)).items():
        if field in known and field not in replaced:
            value = tuple(value) if isinstance(value, list) else value
            config.update_from_flattened_dict({field: value})
    return config


def _samples_like(name: str, facts: dict[str, Any]) -> Dataset:
    """Returns a dataset of one sample with the shape, dtype and normalisation of the run's data."""
    sample = np.zeros((1, *facts["sample_shape"]), facts["sample_dtype"])
    label = np.zeros(1, np.int32)
    mean, std = tuple(facts["mean"]), tuple(facts["std"])
    classes = facts["num_classes"]
    return Dataset(name, sample, label, sample, label, classes, mean=mean, std=std)
