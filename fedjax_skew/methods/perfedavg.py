"""Per-FedAvg. Fallah et al., Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach, NeurIPS 2020.

A step adapts on one batch, ``w' = w - alpha grad(w)``, and descends from ``w`` along the gradient
at ``w'`` on another batch. The first-order variant ``"fo"`` uses this gradient; the Hessian-free
variant ``"hf"`` multiplies it by ``I - alpha H`` on a third batch, where the Hessian-vector product
is a difference of two gradients. The outer step uses the client optimiser, and ``client_lr`` is the
paper's beta. A step uses two or three batches, so that an epoch has fewer steps by that factor.
Only the pass of the adaptation updates running statistics.

The global model is tested without adaptation. A client's personal model is the global model after
one step of gradient descent on all of its training data; published evaluations adapt on test
batches, which uses their labels.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import NonNegative, Positive, validated
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import Method, StepResult


@validated("hparams.perfedavg")
def perfedavg(
    *, alpha: NonNegative = 0.005, variant: Literal["fo", "hf"] = "fo", delta: Positive = 1e-3
) -> Method:
    """Meta-learns a model that adapts to a client in one step.

    Args:
        alpha: learning rate of the adaptation.
        variant: ``"fo"`` for the first-order form, ``"hf"`` for the Hessian-free form.
        delta: relative step of the difference in the Hessian-free form.
    """

    def step(alpha, delta, s):
        inner, aux = s.grad(s.params, s.batches[0])
        gradient, _ = s.grad(optax.tree.add_scale(s.params, -alpha, inner), s.batches[1])
        if variant == "hf":
            ahead, _ = s.grad(optax.tree.add_scale(s.params, delta, gradient), s.batches[2])
            behind, _ = s.grad(optax.tree.add_scale(s.params, -delta, gradient), s.batches[2])
            bend = optax.tree.sub(ahead, behind)
            gradient = optax.tree.add_scale(gradient, -alpha / (2 * delta), bend)
        params, opt_state = s.descend(s.params, gradient, s.opt_state)
        return StepResult(params, opt_state, s.scratch, aux)

    def personal(alpha, client):
        def total(params, batch):
            outputs, _ = client.model.apply(
                params, client.stats, batch.x, train=True, where=batch.where
            )
            loss = cross_entropy(outputs.logits, batch.labels)
            return jnp.sum(jnp.where(batch.where, loss, 0.0))

        def accumulate(sums, batch):
            return optax.tree.add(sums, jax.grad(total)(client.params, batch))

        gradient = client.fold(accumulate, optax.tree.zeros_like(client.params))
        step = -alpha / jnp.maximum(client.num_samples, 1)
        return optax.tree.add_scale(client.params, step, gradient), client.stats

    return Method(
        "perfedavg",
        step=Partial(step, alpha, delta),
        num_batches=3 if variant == "hf" else 2,
        personal=Partial(personal, alpha),
    )
