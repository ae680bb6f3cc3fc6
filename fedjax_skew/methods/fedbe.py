"""FedBE. Chen and Chao, FedBE: Making Bayesian Model Ensemble Applicable to Federated Learning,
ICLR 2021.

The server samples models around the client models. The teacher is the mean probability of the
average, the sampled and the client models. It is distilled on unlabelled data into a student whose
weights are averaged during training (SWA). As in the published code, the Gaussian is fitted to each
tensor's updates, scaled to length 1, around the model from which the round started, with a tenth of
the standard deviation; the teacher is sharpened; the divergence is divided by the number of
classes; and the learning rate of SWA is constant. Models sampled from the Gaussian use the averaged
running statistics of normalisation layers. The student's statistics are re-estimated on the
server's data by passes in training mode.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew import trees
from fedjax_skew.checks import (
    BelowOne,
    NonNegative,
    NonNegativeInt,
    NumSteps,
    Positive,
    PositiveInt,
    validated,
)
from fedjax_skew.losses import distillation
from fedjax_skew.methods.base import Method, PyTree, Round, ServerResult
from fedjax_skew.methods.server_training import (
    Trained,
    averaged,
    draw,
    equal_weights,
    lookup,
    make_step,
    taking_part,
    unless_empty,
)

MIN_VARIANCE = 1e-5
# After 50 batches, the initial value has a share of 0.9 ** 50, or 0.5 %, in the running average.
MIN_STATS_BATCHES = 50


@validated("hparams.fedbe")
def fedbe(
    *,
    sampling: Literal["gaussian", "dirichlet"] = "gaussian",
    num_models: PositiveInt = 10,
    spread: Positive = 0.1,
    alpha: Positive = 1.0,
    use_clients: bool = True,
    temperature: Positive = 0.5,
    epochs: NumSteps = 20,
    server_lr: Positive = 1e-3,
    momentum: BelowOne = 0.9,
    weight_decay: NonNegative = 1e-5,
    batch_size: PositiveInt = 128,
    swa_start: NonNegativeInt = 500,
    swa_every: PositiveInt = 25,
) -> Method:
    """Distils an ensemble of sampled models into the average on the server's unlabelled data.

    Args:
        sampling: ``"gaussian"`` samples around the clients' updates; ``"dirichlet"`` samples random
            convex combinations of the client models.
        num_models: number of sampled models.
        spread: factor on the standard deviation of the Gaussian.
        alpha: concentration of the Dirichlet distribution.
        use_clients: whether the client models are part of the teacher.
        temperature: the teacher's probabilities are raised to the power of ``1 / temperature``.
        epochs: number of passes over the unlabelled data per round.
        server_lr: learning rate of SGD.
        momentum: momentum of SGD.
        weight_decay: weight decay of SGD.
        batch_size: unlabelled samples per step.
        swa_start: first step whose weights enter the average, or a third of all steps if that is
            earlier.
        swa_every: number of steps between two weights that enter the average.
    """

    def sample(spread, alpha, rnd, key):
        if sampling == "gaussian":
            made = sample_gaussian(rnd, key, num_models, spread)
            return made, jax.tree.map(
                lambda s: jnp.broadcast_to(s, (num_models, *s.shape)), rnd.mean_stats
            )
        weights = jax.random.dirichlet(key, jnp.full(rnd.weights.shape, alpha), (num_models,))
        weights = weights * taking_part(rnd)
        weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-12)
        mix = jax.vmap(trees.weighted_mean, in_axes=(0, None))
        return mix(weights, rnd.client_params), mix(weights, rnd.client_stats)

    def server(
        spread, alpha, temperature, server_lr, momentum, weight_decay, rnd: Round
    ) -> ServerResult:
        x = rnd.unlabelled
        number, num_classes = x.shape[0], rnd.info.num_classes
        steps = epochs * -(-number // batch_size)
        sample_key, train_key, stats_key = jax.random.split(rnd.key, 3)
        params, stats = averaged(rnd)
        teachers, votes = [sample(spread, alpha, rnd, sample_key)], [jnp.ones(num_models)]
        teachers.append(jax.tree.map(lambda a: a[None], (params, stats)))
        votes.append(jnp.ones(1))
        if use_clients:
            teachers.append((rnd.client_params, rnd.client_stats))
            votes.append(taking_part(rnd))
        all_teachers = jax.tree.map(lambda *a: jnp.concatenate(a), *teachers)
        all_votes = jnp.concatenate(votes)

        def teach(batch):
            logits = jax.vmap(lambda p, s: rnd.model.apply(p, s, batch)[0].logits)(*all_teachers)
            mean = jnp.tensordot(all_votes / all_votes.sum(), jax.nn.softmax(logits), 1)
            return jnp.log(jnp.maximum(mean, 1e-30)) / temperature

        teacher = lookup(teach, x, steps * batch_size)

        def objective(params, stats, key):
            ids = draw(key, batch_size, number)
            outputs, stats = rnd.model.apply(params, stats, x[ids], train=True)
            return jnp.mean(distillation(outputs.logits, teacher(ids))) / num_classes, stats

        optimizer = optax.chain(
            optax.add_decayed_weights(weight_decay), optax.sgd(server_lr, momentum)
        )
        step = make_step(objective, optimizer)
        start = min(swa_start, steps // 3)

        def body(carry, at):
            state, mean, taken = carry
            t, key = at
            state = step(state, key)
            take = (t >= start) & ((t - start) % swa_every == 0)
            taken = taken + take
            share = jnp.where(take, 1.0 / jnp.maximum(taken, 1), 0.0)
            mean = optax.tree.add_scale(mean, share, optax.tree.sub(state.params, mean))
            return (state, mean, taken), None

        first = Trained(params, stats, optimizer.init(params))
        keys = jax.random.split(train_key, steps)
        carry = (first, optax.tree.zeros_like(params), jnp.float32(0))
        (last, student, _), _ = jax.lax.scan(body, carry, (jnp.arange(steps), keys))
        stats = _estimate_stats(rnd, student, last.stats, stats_key, batch_size)
        return unless_empty(rnd, ServerResult(student, stats, rnd.state))

    numbers = spread, alpha, temperature, server_lr, momentum or None, weight_decay
    return Method(
        "fedbe",
        server=Partial(server, *numbers),
        needs_client_models=True,
        needs_unlabelled_data=True,
    )


def sample_gaussian(rnd: Round, key: jax.Array, number: int, spread: float) -> PyTree:
    """Samples models ``[number, ...]`` around the clients' updates, tensor by tensor."""
    share = equal_weights(rnd)
    leaves, structure = jax.tree.flatten(rnd.params)
    clients = jax.tree.leaves(rnd.client_params)
    keys = jax.random.split(key, len(leaves))

    def one(start, local, key):
        delta = local - start
        length = jnp.sqrt(jnp.sum(jnp.square(delta), tuple(range(1, delta.ndim)), keepdims=True))
        unit = delta / jnp.maximum(length, 1e-12)
        mean = jnp.tensordot(share, unit, 1)
        variance = jnp.tensordot(share, jnp.square(unit - mean), 1)
        noise = jax.random.normal(key, (number, *start.shape))
        moved = mean + spread * jnp.sqrt(jnp.maximum(variance, MIN_VARIANCE)) * noise
        return start + jnp.dot(share, length.reshape(-1)) * moved

    made = [one(s, c, k) for s, c, k in zip(leaves, clients, keys, strict=True)]
    return jax.tree.unflatten(structure, made)


def _estimate_stats(rnd: Round, params, stats, key, batch_size: int) -> PyTree:
    """Estimates the running statistics of a model on the server's unlabelled data."""
    if not jax.tree.leaves(stats):
        return stats
    x = rnd.unlabelled
    batches = max(MIN_STATS_BATCHES, -(-x.shape[0] // batch_size))

    def body(stats, key):
        batch = x[draw(key, batch_size, x.shape[0])]
        return rnd.model.apply(params, stats, batch, train=True)[1], None

    return jax.lax.scan(body, stats, jax.random.split(key, batches))[0]
