"""Fine-tuning of personal models, for methods that personalise after training."""

import jax
import jax.numpy as jnp
import optax

from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import Batch, Client, PyTree, masked_mean


def fine_tune(
    client: Client,
    params: PyTree,
    stats: PyTree,
    *,
    epochs: int,
    lr: float,
    momentum: float | None = None,
    weight_decay: float = 0.0,
    mask: PyTree = None,
) -> tuple[PyTree, PyTree]:
    """Trains a model by SGD on the cross-entropy over the client's data, without augmentation.

    Args:
        client: the client whose data and batch size are used.
        params: initial parameters.
        stats: initial running statistics.
        epochs: number of passes over the data, each in its own order.
        lr: learning rate.
        momentum: momentum of SGD; None disables it.
        weight_decay: weight decay of SGD.
        mask: one bool per leaf, False for parameters that do not change; all are trained by
            default.

    Returns:
        The trained parameters and running statistics.
    """
    optimizer = optax.chain(optax.add_decayed_weights(weight_decay), optax.sgd(lr, momentum))

    def objective(params: PyTree, stats: PyTree, batch: Batch):
        outputs, stats = client.model.apply(params, stats, batch.x, train=True, where=batch.where)
        return masked_mean(cross_entropy(outputs.logits, batch.labels), batch.where), stats

    def step(carry, batch):
        params, stats, opt_state = carry
        gradient, stats = jax.grad(objective, has_aux=True)(params, stats, batch)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        if mask is not None:
            updates = jax.tree.map(lambda m, u: jnp.where(m, u, 0.0), mask, updates)
        return optax.apply_updates(params, updates), stats, opt_state

    def epoch(e, carry):
        return client.fold(step, carry, jax.random.fold_in(client.key, e))

    init = (params, stats, optimizer.init(params))
    params, stats, _ = jax.lax.fori_loop(0, epochs, epoch, init)
    return params, stats
