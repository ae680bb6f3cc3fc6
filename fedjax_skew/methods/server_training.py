"""Training on the server: compiled loops, sampled batches, and ensembles of client models.

All loops have static lengths and no side effects, because the server step is compiled with the
round and mapped over seeds. Clients whose weight is 0, because their result was not finite, are
excluded.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_skew import trees
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import PyTree, Round, ServerResult, masked_mean
from fedjax_skew.models.functional import Outputs, head

Objective = Callable[[PyTree, PyTree, jax.Array], tuple[jax.Array, PyTree]]


class Trained(NamedTuple):
    """Parameters, running statistics and the optimiser's state."""

    params: PyTree
    stats: PyTree
    opt_state: PyTree


def adam(
    lr: float | optax.Schedule, weight_decay: float | None = None, clip_norm: float | None = None
) -> optax.GradientTransformation:
    """Returns Adam with the weight decay added to the gradient, as in PyTorch.

    Args:
        lr: learning rate or schedule.
        weight_decay: strength of the weight decay; None disables it.
        clip_norm: bound of the gradient's global norm; None disables clipping.
    """
    parts = [] if clip_norm is None else [optax.clip_by_global_norm(clip_norm)]
    parts += [] if weight_decay is None else [optax.add_decayed_weights(weight_decay)]
    return optax.chain(*parts, optax.adam(lr))


def make_step(
    objective: Objective, optimizer: optax.GradientTransformation
) -> Callable[[Trained, jax.Array], Trained]:
    """Returns a function that takes one step on ``objective(params, stats, key)``."""

    def step(state: Trained, key: jax.Array) -> Trained:
        gradient, stats = jax.grad(objective, has_aux=True)(state.params, state.stats, key)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        return Trained(optax.apply_updates(state.params, updates), stats, opt_state)

    return step


def minimize(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    params: PyTree,
    stats: PyTree,
    key: jax.Array,
    *,
    steps: int,
    opt_state: PyTree = None,
) -> Trained:
    """Takes ``steps`` steps, each with its own key.

    Args:
        objective: ``(params, stats, key) -> (loss, stats)``.
        optimizer: optax transformation, including the learning rate.
        params: initial parameters.
        stats: initial running statistics.
        key: PRNG key of the whole loop.
        steps: number of steps.
        opt_state: the optimiser's state from which to continue; a new one by default.
    """
    step = make_step(objective, optimizer)
    first = Trained(params, stats, optimizer.init(params) if opt_state is None else opt_state)
    return jax.lax.scan(lambda s, k: (step(s, k), None), first, jax.random.split(key, steps))[0]


def draw(key: jax.Array, size: int, number: int) -> jax.Array:
    """Draws ``size`` indices below ``number`` with replacement."""
    return jax.random.randint(key, (size,), 0, number)


def lookup(
    fn: Callable[[jax.Array], PyTree], x: jax.Array, draws: int
) -> Callable[[jax.Array], PyTree]:
    """Returns ``ids -> fn(x[ids])``, computed directly or read from a table.

    Args:
        fn: a function that does not change, from a batch to arrays with a leading batch axis.
        x: all samples.
        draws: total number of samples that will be looked up. If it is at least the number of
            samples, the values of all samples are computed once and stored in a table.
    """
    number = x.shape[0]
    if draws < number:
        return lambda ids: fn(x[ids])
    chunk = min(256, number)
    count = -(-number // chunk)
    ids = jnp.minimum(jnp.arange(count * chunk), number - 1).reshape(count, chunk)
    rows = jax.lax.map(lambda i: fn(x[i]), ids)
    table = jax.tree.map(lambda a: a.reshape(count * chunk, *a.shape[2:])[:number], rows)
    return lambda ids: jax.tree.map(lambda a: a[ids], table)


def taking_part(rnd: Round) -> jax.Array:
    """Returns 1 for clients with a positive weight and 0 for the others, ``[M]``."""
    return (rnd.weights > 0).astype(jnp.float32)


def equal_weights(rnd: Round) -> jax.Array:
    """Returns equal weights ``[M]``, with sum 1, for all clients that take part."""
    part = taking_part(rnd)
    return part / jnp.maximum(jnp.sum(part), 1)


def client_outputs(rnd: Round, x: jax.Array) -> Outputs:
    """Returns the outputs of every client's model in evaluation mode, ``[M, B, ...]``."""
    return jax.vmap(lambda p, s: rnd.model.apply(p, s, x)[0])(rnd.client_params, rnd.client_stats)


def averaged(rnd: Round) -> tuple[PyTree, PyTree]:
    """Returns the weighted mean of the client models."""
    return optax.tree.add(rnd.params, rnd.mean_delta), rnd.mean_stats


def unless_empty(rnd: Round, result: ServerResult) -> ServerResult:
    """Returns the result, or the model and state of the round's start if no client took part."""
    start = ServerResult(rnd.params, rnd.stats, rnd.state)
    return trees.select(jnp.sum(rnd.weights) > 0, result, start)


def new_head(key: jax.Array, like: PyTree, num_features: int = 0) -> PyTree:
    """Returns a random classifier with the fields of ``like``.

    If ``num_features`` is given, it replaces the number of features of ``like``.
    """
    features, classes = like["kernel"].shape
    features = num_features or features
    bound = features**-0.5
    made = {"kernel": jax.random.uniform(key, (features, classes), minval=-bound, maxval=bound)}
    return made | {"bias": jnp.zeros_like(like["bias"])} if "bias" in like else made


def with_head(params: PyTree, classifier: PyTree) -> PyTree:
    """Returns the parameters with another classifier."""
    return {**params, "head": classifier}


def retrain_head(
    classifier: PyTree,
    features: jax.Array,
    labels: jax.Array,
    where: jax.Array,
    key: jax.Array,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
) -> PyTree:
    """Trains a classifier on fixed features by plain SGD on the mean cross-entropy.

    Args:
        classifier: initial classifier.
        features: ``[n, D]``.
        labels: int32 ``[n]``.
        where: bool ``[n]``, the rows to include.
        key: PRNG key of the shuffles.
        epochs: number of passes over the features.
        batch_size: rows per step; the last batch of a pass may be partial.
        lr: learning rate.
    """
    number = features.shape[0]
    count = -(-number // batch_size)

    def loss(classifier, ids):
        logits = head({"head": classifier}, features[ids])
        return masked_mean(cross_entropy(logits, labels[ids]), (ids >= 0) & where[ids])

    def step(classifier, ids):
        return optax.tree.add_scale(classifier, -lr, jax.grad(loss)(classifier, ids)), None

    def epoch(classifier, key):
        order = jax.random.permutation(key, number)
        order = jnp.pad(order, (0, count * batch_size - number), constant_values=-1)
        return jax.lax.scan(step, classifier, order.reshape(count, batch_size))

    return jax.lax.scan(epoch, classifier, jax.random.split(key, epochs))[0]
