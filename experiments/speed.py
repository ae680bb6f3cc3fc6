"""Measures how fast this machine trains a model, from a few rounds on random data."""

import functools
import time
from typing import NamedTuple

import jax
import ml_collections
import numpy as np

from experiments import estimate
from fedjax_skew.config import default_config
from fedjax_skew.simulation import problem
from fedjax_skew.simulation.arrays import device_arrays
from fedjax_skew.simulation.state import initial_state
from fedjax_skew.simulation.tracing import trace_rounds

_STEPS = 2  # Local steps of every client in a timed round.
_MOST_FLOPS = 2e10  # Limit of one timed step; above it, a smaller batch is timed.
_LEAST_SECONDS, _MOST_ROUNDS = 0.5, 5
# Fields that affect the speed, in addition to the model and its input.
_FIELDS = ("batch_size", "augment", "conv_impl", "compute_dtype", "batch_norm", "remat")


class Speed(NamedTuple):
    """The speed of training.

    Attributes:
        flops: floating-point operations per second, as counted by ``experiments.estimate``.
        compile_seconds: time to compile a round.
    """

    flops: float
    compile_seconds: float


def measure(config: ml_collections.ConfigDict) -> Speed:
    """Times FedAvg with the model, input and batch size of a configuration on all devices.

    Configurations that agree in these are timed once.
    """
    size = estimate.size(config)
    fields = tuple((name, config[name]) for name in _FIELDS)
    return _measure(config.model, size.shape, size.classes, size.itemsize, fields)


@functools.cache
def _measure(
    model: str, shape: tuple[int, ...], classes: int, itemsize: int, fields: tuple
) -> Speed:
    config = default_config()
    for name, value in fields:
        config[name] = value
    config.model, config.partition = model, "iid"
    config.num_clients = len(jax.devices())
    config.rounds, config.local_epochs, config.local_steps = 1_000_000, 0, _STEPS
    per_sample = estimate.training_flops(model, shape, classes)
    config.batch_size = max(1, min(config.batch_size, int(_MOST_FLOPS / per_sample)))
    count = config.num_clients * _STEPS * config.batch_size
    size = estimate.Size(count, 1, shape, classes, itemsize)
    made = problem.build(config, dataset=estimate.random_dataset(size))
    arrays, state = device_arrays(made), initial_state(made)
    began = time.perf_counter()
    phase = made.phases[0]
    compiled = trace_rounds(made, phase, state, arrays).lower().compile()
    compile_seconds = time.perf_counter() - began
    times: list[float] = []
    while len(times) < 2 or (len(times) <= _MOST_ROUNDS and sum(times[1:]) < _LEAST_SECONDS):
        began = time.perf_counter()
        until = np.int32(len(times) + 1)
        state, _ = jax.block_until_ready(compiled(phase.spec, state, arrays.data, until))
        times.append(time.perf_counter() - began)
    seconds = min(times[1:])  # Without the warm-up round; the minimum is the least disturbed.
    return Speed(count * per_sample / seconds, compile_seconds)
