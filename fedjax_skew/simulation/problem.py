"""Building a problem, which consists of arrays and pure functions, from a configuration."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from fedjax_skew.config import check
from fedjax_skew.data import availability, datasets
from fedjax_skew.data.client_holdout import split_clients
from fedjax_skew.data.dataset import Dataset, validate
from fedjax_skew.data.federated import FederatedData, federate
from fedjax_skew.data.holdout import with_validation
from fedjax_skew.data.partition import Partition
from fedjax_skew.data.partition import partition as divide_samples
from fedjax_skew.engine.keys import seed_keys
from fedjax_skew.engine.mesh import client_mesh
from fedjax_skew.engine.target import Target, platform_of
from fedjax_skew.methods import Method, compose
from fedjax_skew.methods.base import RunInfo
from fedjax_skew.methods.fedbn import local_statistics
from fedjax_skew.simulation.phases import Phase, check_optimizer, make_model, make_phases

PyTree = Any


@dataclasses.dataclass(frozen=True)
class Given:
    """The objects by which a caller replaced fields of the configuration, or None."""

    dataset: Dataset | None = None
    partition: Partition | Sequence[Partition] | None = None
    method: Method | None = None
    module: nn.Module | None = None
    optimizer: optax.GradientTransformation | None = None
    params: PyTree = None


@dataclasses.dataclass(frozen=True)
class Problem:
    """A validated configuration, its data on the host, and its phases.

    ``holdouts`` contains, for every seed, the samples that clients hold out from training; it is
    empty without ``client_holdout``.
    """

    config: ml_collections.ConfigDict
    dataset: Dataset
    partitions: tuple[Partition, ...]
    data: FederatedData
    seeds: tuple[int, ...]
    phases: tuple[Phase, ...]
    given: Given
    holdouts: tuple[Partition, ...] = ()

    @property
    def info(self) -> RunInfo:
        """The run's constants."""
        return self.phases[0].spec.local.info

    @property
    def keys(self) -> jax.Array:
        """Raw PRNG keys ``[S, 2]``, one per seed."""
        return seed_keys(jnp.asarray(self.seeds, jnp.uint32))


def build(
    config: ml_collections.ConfigDict,
    *,
    dataset: Dataset | None = None,
    partition: Partition | Sequence[Partition] | None = None,
    method: Method | None = None,
    module: nn.Module | None = None,
    optimizer: optax.GradientTransformation | None = None,
    params: PyTree = None,
    devices: Sequence[Any] | None = None,
    target: str | None = None,
) -> Problem:
    """Validates the configuration, loads and partitions the data, and builds the pure functions.

    Args:
        config: the configuration; see ``fedjax_skew.config.default_config``.
        dataset: see ``fedjax_skew.simulate``, as for the following five arguments.
        partition: one partition for all seeds, or one per seed.
        method: a method that is not registered.
        module: a flax module that replaces the configured model.
        optimizer: a complete optimiser that replaces the configured SGD for local steps.
        params: initial parameters or flax variables that replace random ones.
        devices: replaces ``jax.devices()``: a subset of them, or the devices of a topology for
            which programs are only compiled.
        target: the platform for which programs are compiled, ``"cpu"``, ``"cuda"``, ``"rocm"`` or
            ``"tpu"``; that of the devices by default. Programs can be lowered for any platform.
    """
    given = Given(dataset, partition, method, module, optimizer, params)
    method = check(config, method)
    dataset = validate(dataset) if dataset else load_dataset(config)
    dataset = with_validation(dataset, config.dataset.validation, config.dataset.seed)
    seeds = tuple(range(config.seed, config.seed + config.num_seeds))
    partitions = _given_partitions(given, config, dataset) or tuple(
        divide(config, dataset, seed) for seed in seeds
    )
    holdouts: tuple[Partition, ...] = ()
    if config.client_holdout:
        halves = [
            split_clients(part, dataset.y_train, config.client_holdout, seed)
            for part, seed in zip(partitions, seeds, strict=True)
        ]
        partitions, holdouts = tuple(zip(*halves, strict=True))
    other = config.server_data.unlabelled_dataset
    foreign = method.needs_unlabelled_data and other and other != "labelled"
    unlabelled = _unlabelled(other, config, dataset) if foreign else None
    data = federate(dataset.x_train, dataset.y_train, partitions, unlabelled)
    if other == "labelled":
        data = data._replace(unlabelled=data.labelled)
    if optimizer is not None:
        check_optimizer(config, method)
    num_clients = partitions[0].class_counts.shape[0]
    info = RunInfo(
        num_clients=num_clients,
        num_classes=dataset.num_classes,
        cohort_size=max(1, round(num_clients * config.participation)),
        rounds=config.rounds,
        batch_size=config.batch_size,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        keep_momentum=config.keep_momentum and (config.momentum > 0 or optimizer is not None),
        sgd=method.optimizer is None and optimizer is None,
        largest_client=int(np.diff(data.offsets, axis=1).max()),
    )
    _check_size_of_round(config, partitions)
    weights = availability.load(config.availability, num_clients, info.cohort_size)
    data = data._replace(log_weights=weights)
    if config.batch_norm == "local":
        method = compose([method, local_statistics()])
    mesh = client_mesh(config.num_devices, devices)
    aim = Target(target or platform_of(mesh), config.matmul_precision, config.deterministic)
    model = make_model(config, dataset, method, aim, module)
    sample = jax.ShapeDtypeStruct(dataset.x_train.shape[1:], dataset.x_train.dtype)
    phases = make_phases(config, info, method, model, mesh, aim, sample, optimizer)
    return Problem(config, dataset, partitions, data, seeds, phases, given, holdouts)


def load_dataset(config: ml_collections.ConfigDict, name: str = "") -> Dataset:
    """Loads the configured dataset, or the one called ``name`` if given."""
    name = name or config.dataset.name
    options = {
        option: config.dataset[option]
        for option in ("path", "image_size", "num_classes", "synsets")
        if config.dataset[option] and name == config.dataset.name
    }
    return datasets.load(
        name,
        data_dir=config.dataset.data_dir or None,
        seed=config.dataset.seed,
        num_clients=config.num_clients,
        **options,
    )


def divide(config: ml_collections.ConfigDict, dataset: Dataset, seed: int) -> Partition:
    """Returns the partition of one seed."""
    server = config.server_data
    return divide_samples(
        config.partition,
        dataset.y_train,
        num_clients=config.num_clients,
        num_classes=dataset.num_classes,
        seed=seed,
        client_ids=dataset.client_ids,
        labelled=server.labelled,
        unlabelled=0.0 if server.unlabelled_dataset else server.unlabelled,
    )


def _given_partitions(
    given: Given, config: ml_collections.ConfigDict, dataset: Dataset
) -> tuple[Partition, ...]:
    """Returns the given partitions, one per seed, or an empty tuple if none was given."""
    if given.partition is None:
        return ()
    found = (
        (given.partition,) * config.num_seeds
        if isinstance(given.partition, Partition)
        else tuple(given.partition)
    )
    if len(found) != config.num_seeds:
        raise ValueError(
            f"partition contains {len(found)} partitions for num_seeds={config.num_seeds}; give "
            "one partition per seed, or a single one for all seeds."
        )
    for part in dict.fromkeys(found):
        part.check(dataset.y_train, dataset.num_classes)
    shapes = {(len(p.offsets), len(p.labelled), len(p.unlabelled)) for p in found}
    if len(shapes) > 1:
        raise ValueError(
            "partition contains partitions with different numbers of clients or of server "
            "samples; they must be equal for all seeds."
        )
    for kind in ("labelled", "unlabelled"):
        if config.server_data[kind] and not len(getattr(found[0], kind)):
            raise ValueError(
                f"server_data.{kind}={config.server_data[kind]} requires server samples, but the "
                "given partition has none; set it to 0, or give a partition that has them."
            )
    return found


def _check_size_of_round(config, partitions: tuple[Partition, ...]) -> None:
    """Raises if the number of samples that a round uses does not fit in int32."""
    samples = max(len(p.order) for p in partitions)
    clients = partitions[0].class_counts.shape[0]
    field, size = "local_epochs", samples
    if config.local_steps:
        field, size = "local_steps", clients * config.batch_size
    if config[field] * size >= 2**31:
        raise ValueError(
            f"{field}={config[field]} is too large for one round of {clients} clients; it must be "
            f"at most {(2**31 - 1) // size}, so that the samples of a round can be counted."
        )


def _unlabelled(name: str, config, dataset: Dataset) -> np.ndarray:
    other = load_dataset(config, name).x_train
    if other.shape[1:] != dataset.x_train.shape[1:]:
        raise ValueError(
            f"server_data.unlabelled_dataset={name!r} has samples of shape {other.shape[1:]}, but "
            f"{dataset.name} has {dataset.x_train.shape[1:]}; they must be equal."
        )
    return other
