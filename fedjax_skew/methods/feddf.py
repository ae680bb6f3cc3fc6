"""FedDF. Lin et al., Ensemble Distillation for Robust Model Fusion in Federated Learning, NeurIPS
2020.

The server averages the client models with equal weights. It then trains the average, in training
mode and on unlabelled data, to match the ensemble, which is the softmax of the clients' mean
logits. The published code takes up to 10,000 steps and stops after 1,000 steps without an improved
accuracy on labelled validation data. This requires labels on the server, so the default is a fixed
number of steps; ``validation=True`` selects the published rule, on the server's labelled data. The
cosine schedule spans ``steps`` in both cases. The batch size is that of the paper. The other
teachers of the published code (the mean of losses, and the exclusion of clients at chance level)
are not implemented.
"""

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew import trees
from fedjax_skew.checks import NonNegative, NumSteps, Positive, PositiveInt, validated
from fedjax_skew.losses import distillation
from fedjax_skew.methods.base import Method, Round, ServerResult, uniform
from fedjax_skew.methods.server_training import (
    Trained,
    adam,
    averaged,
    client_outputs,
    draw,
    equal_weights,
    lookup,
    make_step,
    minimize,
    unless_empty,
)


@validated("hparams.feddf")
def feddf(
    *,
    steps: NumSteps = 1000,
    server_lr: Positive = 1e-3,
    batch_size: PositiveInt = 128,
    temperature: Positive = 1.0,
    clip_norm: NonNegative = 5.0,
    validation: bool = False,
    check_every: PositiveInt = 100,
    patience: PositiveInt = 1000,
) -> Method:
    """Distils the ensemble of client models into their average on unlabelled data.

    Args:
        steps: number of distillation steps per round, or their maximum with ``validation``.
        server_lr: initial learning rate of Adam, which decays to 0 by a cosine over ``steps``.
        batch_size: unlabelled samples per step.
        temperature: temperature of both softmaxes; the loss is not multiplied by its square.
        clip_norm: bound of the gradient's norm; 0 disables clipping.
        validation: whether to keep the student with the best accuracy on the server's labelled data
            and to stop early when it no longer improves.
        check_every: number of steps between two validations.
        patience: number of steps without improvement after which training stops.
    """

    def server(server_lr, temperature, clip_norm, rnd: Round) -> ServerResult:
        x, share = rnd.unlabelled, equal_weights(rnd)
        number = x.shape[0]
        teacher = lookup(
            lambda batch: jnp.tensordot(share, client_outputs(rnd, batch).logits, 1),
            x,
            steps * batch_size,
        )

        def objective(params, stats, key):
            ids = draw(key, batch_size, number)
            outputs, stats = rnd.model.apply(params, stats, x[ids], train=True)
            loss = distillation(outputs.logits, teacher(ids), temperature=temperature)
            return jnp.mean(loss), stats

        optimizer = adam(optax.cosine_decay_schedule(server_lr, steps), clip_norm=clip_norm)
        if validation:
            done = _best(rnd, objective, optimizer, steps, check_every, patience)
        else:
            done = minimize(objective, optimizer, *averaged(rnd), rnd.key, steps=steps)
        return unless_empty(rnd, ServerResult(done.params, done.stats, rnd.state))

    return Method(
        "feddf",
        weight=uniform,
        server=Partial(server, server_lr, temperature, clip_norm or None),
        needs_client_models=True,
        needs_unlabelled_data=True,
        needs_labelled_data=validation,
    )


def _best(rnd: Round, objective, optimizer, steps: int, every: int, patience: int) -> Trained:
    """Trains in blocks of ``every`` steps and returns the best state at the end of a block."""
    x, labels = rnd.labelled
    step = make_step(objective, optimizer)
    blocks = -(-steps // every)

    def accuracy(state):
        def guess(batch):
            return jnp.argmax(rnd.model.apply(state.params, state.stats, batch)[0].logits, -1)

        return jnp.mean(lookup(guess, x, len(x))(jnp.arange(len(x))) == labels)

    def unfinished(carry):
        block, _, _, _, best_block = carry
        return (block < blocks) & ((block - best_block) * every < patience)

    def body(carry):
        block, state, best, best_accuracy, best_block = carry
        keys = jax.random.split(jax.random.fold_in(rnd.key, block), every)
        state = jax.lax.scan(lambda s, k: (step(s, k), None), state, keys)[0]
        reached = accuracy(state)
        better = reached > best_accuracy
        best = trees.select(better, state, best)
        best_block = jnp.where(better, block + 1, best_block)
        return block + 1, state, best, jnp.maximum(reached, best_accuracy), best_block

    params, stats = averaged(rnd)
    first = Trained(params, stats, optimizer.init(params))
    zero = jnp.int32(0)
    start = (zero, first, first, jnp.float32(-1), zero)
    return jax.lax.while_loop(unfinished, body, start)[2]
