"""Contenders in JAX: this package's round, and a Python loop over jitted client steps."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_skew.losses import cross_entropy
from fedjax_skew.models.functional import Model
from fedjax_skew.simulation.arrays import device_arrays
from fedjax_skew.simulation.phases import make_model
from fedjax_skew.simulation.problem import Problem
from fedjax_skew.simulation.state import initial_state
from fedjax_skew.simulation.tracing import trace_rounds


class Ours:
    """The vectorised round of this package.

    Attributes:
        compile_seconds: time to lower and compile the round.
        memory_mb: memory of the compiled round on one device, without the dataset.
        useful: number of local steps so far that trained a client.
        executed: number of local steps so far, including padded ones.
    """

    def __init__(self, problem: Problem):
        arrays, self.state = device_arrays(problem), initial_state(problem)
        self.data, self.spec = arrays.data, problem.phases[0].spec
        began = time.time()
        traced = trace_rounds(problem, problem.phases[0], self.state, arrays)
        self.compiled: Any = traced.lower().compile()
        self.compile_seconds = time.time() - began
        found: Any = self.compiled.memory_analysis()
        state = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state))
        self.memory_mb = (found.temp_size_in_bytes + state) / 2**20
        self.useful, self.executed = 0, 0

    def round(self) -> int:
        """Runs the next round and returns the number of samples it used."""
        until = np.int32(int(self.state.round) + 1)
        self.state, report = jax.block_until_ready(
            self.compiled(self.spec, self.state, self.data, until)
        )
        self.useful += int(report.useful_steps[0])
        self.executed += int(report.executed_steps[0])
        return int(report.samples[0])


def plain_model(problem: Problem) -> Model:
    """Returns the problem's model with XLA's own convolutions, which are fast outside of a loop."""
    config = problem.config.copy_and_resolve_references()
    config.conv_impl = "xla"
    phase = problem.phases[0]
    return make_model(config, problem.dataset, phase.method, phase.spec.target)


class JittedLoop:
    """A Python loop over clients and batches with one jitted step.

    Simulators without a client axis work like this.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        config = problem.config
        self.model = plain_model(problem)
        self.params, self.stats = jax.jit(self.model.init)(
            jax.random.key(0), problem.dataset.x_train[:1]
        )
        self.step = self._make_step(config.client_lr, config.momentum)
        self.rng = np.random.default_rng(0)

    def _make_step(self, lr: float, momentum: float) -> Callable[..., Any]:
        def loss(params, stats, x, labels):
            outputs, stats = self.model.apply(params, stats, x, train=True)
            return cross_entropy(outputs.logits, labels).mean(), stats

        @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
        def step(params, stats, trace, x, labels):
            gradient, stats = jax.grad(loss, has_aux=True)(params, stats, x, labels)
            trace = jax.tree.map(lambda m, g: momentum * m + g, trace, gradient)
            return jax.tree.map(lambda p, m: p - lr * m, params, trace), stats, trace

        return step

    def round(self) -> int:
        """Trains a cohort client by client, averages, and returns the number of samples."""
        total, samples, weight = None, 0, 0
        for x, labels in client_batches(self.problem, self.rng):
            params = jax.tree.map(jnp.copy, self.params)
            stats = jax.tree.map(jnp.copy, self.stats)
            trace = jax.tree.map(jnp.zeros_like, params)
            size = 0
            for bx, by in zip(x, labels, strict=True):
                params, stats, trace = self.step(params, stats, trace, bx, by)
                size += len(by)
            scaled = jax.tree.map(lambda p, n=size: n * p, (params, stats))
            total = scaled if total is None else jax.tree.map(jnp.add, total, scaled)
            samples, weight = samples + size, weight + size
        self.params, self.stats = jax.tree.map(lambda t: t / weight, total)
        jax.block_until_ready(self.params)
        return samples


def client_batches(problem: Problem, rng: np.random.Generator):
    """Yields the clients of a round, each as lists of numpy batches."""
    config, data, info = problem.config, problem.data, problem.info
    for k in rng.choice(info.num_clients, info.cohort_size, replace=False):
        ids = np.asarray(data.order[0, data.offsets[0, k] : data.offsets[0, k + 1]])
        batches: list[np.ndarray] = []
        while True:
            order = rng.permutation(ids)
            batches += [
                order[i : i + config.batch_size] for i in range(0, len(ids), config.batch_size)
            ]
            epochs = len(batches) // -(-len(ids) // config.batch_size)
            if config.local_steps and len(batches) >= config.local_steps:
                batches = batches[: config.local_steps]
                break
            if not config.local_steps and epochs >= config.local_epochs:
                break
        yield [data.x[b] for b in batches], [data.labels[b] for b in batches]
