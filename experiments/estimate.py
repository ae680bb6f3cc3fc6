"""Estimates the FLOPs and memory of a cell without its data and without compiling it.

All operations are counted in traced programs. The forward pass of the model is traced at its real
size. What a method adds (a teacher, a second gradient, training on the server) is counted in rounds
of a tiny problem and converted to training steps, so a new method needs no code here. The work of
the server is counted for two amounts of server data and extrapolated to the real one.
"""

import dataclasses
import functools
import math
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from fedjax_skew import models
from fedjax_skew.config import default_config, used_hparams
from fedjax_skew.data import datasets
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.engine import flops
from fedjax_skew.engine.round import run_round
from fedjax_skew.methods import build as build_method
from fedjax_skew.simulation import problem
from fedjax_skew.simulation.state import phase_state

_TINY_FEATURES, _TINY_CLASSES, _TINY_SAMPLES = 64, 10, 1600
_TINY_SERVER = (256, 512)  # Server samples; multiples of the batch sizes on the server.


class Size(NamedTuple):
    """The size of a dataset.

    Attributes:
        train: number of training samples.
        test: number of test samples.
        shape: shape of one sample.
        classes: number of classes.
        itemsize: bytes per value.
    """

    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    itemsize: int


@dataclasses.dataclass(frozen=True)
class Cost:
    """The estimated cost of one cell.

    Attributes:
        flops: floating-point operations of all rounds and seeds, including evaluation.
        memory: bytes on the device.
    """

    flops: float
    memory: float


def cost(config: ml_collections.ConfigDict) -> Cost:
    """Estimates the cost of a run."""
    data = size(config)
    cohort = max(1, round(config.num_clients * config.participation))
    forward, params, activations = _model(config.model, data.shape, data.classes)
    share = _long_tail_share(config.partition, data.classes)
    if config.local_steps:
        samples = cohort * config.local_steps * config.batch_size
    else:
        samples = data.train * share * config.local_epochs * config.participation
    extra = _method(config.method, _freeze(used_hparams(config)), min(cohort, 8))
    server = extra.server + extra.server_per_sample * _server_samples(config, data)
    training = 3 * forward * (samples * extra.passes + server)
    scored = data.test + (data.train if config.eval_train_set else 0)
    then = build_method(config.method, used_hparams(config)).next_phase
    # A second phase costs little compared with the first.
    work = training * (then.rounds if then else config.rounds)
    work = config.num_seeds * (work + forward * scored * config.rounds / config.eval_every)
    chunk = (config.clients_per_chunk or 1) * len(jax.devices())
    memory = (
        (data.train + data.test) * math.prod(data.shape) * data.itemsize
        + chunk * (4 * params + config.batch_size * activations)
        + config.num_seeds * params * (2 + extra.kept * config.num_clients)
        + config.num_seeds * params * (cohort if extra.needs_client_models else 0)
        + config.num_seeds * params * (config.num_clients if config.keep_momentum else 0)
    )
    return Cost(work, memory)


def training_flops(model: str, shape: tuple[int, ...], classes: int) -> float:
    """Returns the operations to train on one sample, three times those of the forward pass."""
    return 3 * _model(model, shape, classes)[0]


class _Extra(NamedTuple):
    """The cost of a method relative to FedAvg.

    Attributes:
        passes: work of one local step, in steps of FedAvg.
        server: work of the server per round without data, in samples on which a client trains.
        server_per_sample: work of the server per sample that it holds, in the same unit.
        kept: size of the state that a client keeps, in models.
        needs_client_models: whether the server holds every client's model.
    """

    passes: float
    server: float
    server_per_sample: float
    kept: float
    needs_client_models: bool


@functools.cache
def _model(name: str, shape: tuple[int, ...], classes: int) -> tuple[float, int, int]:
    """Returns forward FLOPs per sample, bytes of parameters and bytes of activations per sample."""
    batch = 8
    module = models.build(name, classes, conv_impl="xla")
    x = jax.ShapeDtypeStruct((batch, *shape), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    variables = jax.eval_shape(functools.partial(module.init, train=False), key, x)
    traced = jax.make_jaxpr(functools.partial(module.apply, train=False))(variables, x)
    params = sum(4 * leaf.size for leaf in jax.tree.leaves(variables["params"]))
    kept = flops.intermediate_bytes(traced.jaxpr)
    return sum(flops.count(traced.jaxpr)) / batch, params, kept // batch


@functools.cache
def _method(name: str, hparams: tuple, cohort: int) -> _Extra:
    method = build_method(name, _thaw(hparams))
    few, many = _TINY_SERVER
    (plain, _), (own, kept) = _tiny("fedavg", (), cohort, few), _tiny(name, hparams, cohort, few)
    per_sample = plain.looped / (cohort * default_config().batch_size)
    server, slope = max(own.plain - plain.plain, 0.0) / per_sample, 0.0
    if method.needs_labelled_data or method.needs_unlabelled_data:
        more, _ = _tiny(name, hparams, cohort, many)
        slope = max(more.plain - own.plain, 0.0) / per_sample / (many - few)
    return _Extra(
        passes=max(own.looped / plain.looped, 1.0),
        server=max(server - slope * few, 0.0),
        server_per_sample=slope,
        kept=kept,
        needs_client_models=method.needs_client_models,
    )


@functools.cache
def _tiny(name: str, hparams: tuple, cohort: int, server: int) -> tuple[flops.Count, float]:
    """Counts a round on a tiny problem; returns it with the size of a client's state in models."""
    config = default_config()
    config.method, config.model, config.partition = name, "mlp", "iid"
    config.conv_impl = "xla"  # Compiled kernels are not counted.
    config.num_clients, config.rounds = cohort, 10_000
    config.clients_per_chunk, config.num_devices = cohort, 1
    config.server_data.labelled = config.server_data.unlabelled = server / _TINY_SAMPLES
    for method, values in _thaw(hparams).items():
        for field, value in values.items():
            config.hparams[method][field] = value
    rng = np.random.default_rng(0)
    labels = np.arange(_TINY_SAMPLES, dtype=np.int32) % _TINY_CLASSES
    x = rng.normal(size=(len(labels), _TINY_FEATURES)).astype(np.float32)
    data = Dataset("tiny", x, labels, x[:10], labels[:10], _TINY_CLASSES)
    made = problem.build(config, dataset=data)
    phase = made.phases[0]
    shapes = jax.eval_shape(phase.model.init, jax.random.key(0), x[:1])
    zeros = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape), leaf.dtype), shapes)
    state = phase_state(made, phase, *zeros)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state.params))
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(state.clients)) / cohort
    traced = jax.make_jaxpr(functools.partial(run_round, phase.spec))(state, made.data)
    return flops.count(traced.jaxpr), kept / size


def size(config: ml_collections.ConfigDict) -> Size:
    """Returns the size of a dataset from the registry, or from the data if it is not registered."""
    info = datasets.find(config.dataset.name)
    if info is not None and info.num_train:
        itemsize = 1 if len(info.shape) == 3 else 4
        found = Size(info.num_train, info.num_test, info.shape, info.num_classes, itemsize)
        side = config.dataset.image_size
        return found._replace(shape=(side, side, found.shape[-1])) if side else found
    data = problem.load_dataset(config)
    x = data.x_train
    return Size(len(x), len(data.x_test), x.shape[1:], data.num_classes, x.itemsize)


def _server_samples(config: ml_collections.ConfigDict, data: Size) -> float:
    """Returns the number of labelled or unlabelled samples of the server, the larger of the two."""
    server = config.server_data
    other = server.unlabelled_dataset
    if other and other != "labelled":
        info = datasets.find(other)
        return max(info.num_train if info else 0, server.labelled * data.train)
    return max(server.labelled, server.unlabelled) * data.train


def random_dataset(size: Size) -> Dataset:
    """Returns random samples with the shape and type of a dataset and balanced classes."""
    rng = np.random.default_rng(0)
    count = size.train + size.test
    labels = (np.arange(count) % size.classes).astype(np.int32)
    if size.itemsize == 1:
        x = rng.integers(0, 256, (count, *size.shape), dtype=np.uint8)
        half = (0.5,) * size.shape[-1]
    else:
        x, half = rng.normal(size=(count, *size.shape)).astype(np.float32), ()
    train = x[: size.train], labels[: size.train]
    test = x[size.train :], labels[: size.test]
    return Dataset("random", *train, *test, size.classes, None, half, half)


def _long_tail_share(partition: str, classes: int) -> float:
    """Returns the fraction of the samples that remains in a long-tailed training set."""
    found = re.search(r"longtail\(if=([\d.]+)", partition)
    if not found:
        return 1.0
    factor = float(found[1])
    return float(np.mean(factor ** (-np.arange(classes) / (classes - 1))))


def _freeze(hparams: dict[str, dict[str, Any]]) -> tuple:
    return tuple((m, tuple(sorted(values.items()))) for m, values in sorted(hparams.items()))


def _thaw(hparams: tuple) -> dict[str, dict[str, Any]]:
    return {method: dict(values) for method, values in hparams}
