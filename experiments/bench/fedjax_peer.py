"""The same round simulated by FedJAX, with its batches and its jitted backend."""

import fedjax
import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench.jax_peers import plain_model
from fedjax_skew.losses import cross_entropy
from fedjax_skew.simulation.problem import Problem


class FedjaxRound:
    """Federated averaging by ``fedjax.for_each_client``.

    FedJAX's own algorithm does the same, but it calls functions that JAX has removed. FedJAX fills
    the last batch of a client with further samples, which are not counted here. It does not support
    running statistics, so networks with batch normalisation are left out.
    """

    def __init__(self, problem: Problem):
        config = problem.config
        self.problem = problem
        model = plain_model(problem)
        self.params, stats = jax.jit(model.init)(jax.random.key(0), problem.dataset.x_train[:1])
        if jax.tree.leaves(stats):
            raise ValueError(f"model={config.model!r} has running statistics.")
        optimizer = fedjax.optimizers.sgd(config.client_lr, momentum=config.momentum or None)

        def loss(params, batch):
            outputs, _ = model.apply(params, stats, batch["x"], train=True)
            return cross_entropy(outputs.logits, batch["y"]).mean()

        def init(params, _):
            return params, optimizer.init(params)

        def step(state, batch):
            params, trace = state
            trace, params = optimizer.apply(jax.grad(loss)(params, batch), trace, params)
            return params, trace

        with fedjax.for_each_client_backend("jit"):
            self.train = fedjax.for_each_client(init, step, lambda _, state: state[0])
        self.batches = fedjax.ShuffleRepeatBatchHParams(
            batch_size=config.batch_size,
            num_epochs=None if config.local_steps else config.local_epochs,
            num_steps=config.local_steps or None,
        )
        self.rng = np.random.default_rng(0)

    def round(self) -> int:
        """Trains a cohort and returns the samples of its clients, once per epoch."""
        config, data, info = self.problem.config, self.problem.data, self.problem.info
        clients, sizes = [], {}
        for k in self.rng.choice(info.num_clients, info.cohort_size, replace=False):
            ids = np.asarray(data.order[0, data.offsets[0, k] : data.offsets[0, k + 1]])
            dataset = fedjax.ClientDataset({"x": data.x[ids], "y": data.labels[ids]})
            clients.append((int(k), dataset.shuffle_repeat_batch(self.batches), None))
            sizes[int(k)] = len(ids)
        total = jax.tree.map(jnp.zeros_like, self.params)
        for k, params in self.train(self.params, clients):
            share = sizes[k] / sum(sizes.values())
            total = jax.tree.map(lambda t, p, share=share: t + share * p, total, params)
        self.params = jax.block_until_ready(total)
        if config.local_steps:
            return info.cohort_size * config.local_steps * config.batch_size
        return config.local_epochs * sum(sizes.values())
