"""FedLF. Lu et al., FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated
Long-Tailed Learning, ACML 2024.

The loss is ``L_A + lam * L_C + gamma * L_D``, with a head without bias. ``lam=0`` and ``gamma=0``
disable a term. The paper and the authors' code differ in the last two terms:

``form="code"``, the default: the class centres of ``L_C`` are computed once per round, by a pass
over the client's shuffled and augmented data with the received model in training mode, and stay
fixed during local training. The margin is enforced, ``L_C`` is a mean over the batch, and ``L_D``
is scaled as in FedDecorr.

``form="paper"``, the printed equations: a centre is the mean of the features seen in the current
epoch, including the current batch. The margin has the opposite sign, which rewards it, ``L_C`` is a
sum over the batch, and ``L_D`` sums over all pairs of features. This sum grows with the square of
the number of features: on MNIST (``configs/mnist.py``, 200 features) and with the paper's weight of
0.01, accuracy is 13.5 % after 20 rounds, whereas training succeeds without the term.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import Fraction, NonNegative, validated
from fedjax_skew.methods.base import Method, nonzero
from fedjax_skew.methods.class_sums import add_batch, class_means, zero_sums


@validated("hparams.fedlf")
def fedlf(
    *,
    lam: NonNegative = 0.01,
    gamma: NonNegative = 0.01,
    alpha: Fraction = 0.25,
    tau: NonNegative = 100.0,
    form: Literal["paper", "code"] = "code",
) -> Method:
    """Scales logits by class size, pulls features to class centres and decorrelates them.

    Args:
        lam: weight of the class centres.
        gamma: weight of the decorrelation.
        alpha: scale of a vacant class's logit.
        tau: upper limit of the margin.
        form: ``"code"`` for the authors' code, ``"paper"`` for the printed equations.
    """

    def loss(alpha, context):
        return context.mean(
            losses.adaptive_logit(
                context.outputs.logits,
                context.batch.labels,
                context.client.class_counts,
                alpha=alpha,
            )
        )

    def centers(client):
        """Returns sums of the received model's features by class, over the client's data."""

        def add(sums, batch):
            return add_batch(sums, client.teacher(batch, train=True).features, batch)

        # Shuffled, because batches of one class would distort batch normalisation.
        key = jax.random.fold_in(client.key, 0)
        return client.fold(add, zero_sums(client), key, augment=True)

    def update_scratch(context):
        """Returns sums of the local model's features by class since the start of the epoch."""
        old = jax.tree.map(lambda a: jnp.where(context.epoch_start, 0.0, a), context.scratch)
        return add_batch(old, context.outputs.features, context.batch)

    def regularizer(weights, tau, context):
        features, batch, total = context.outputs.features, context.batch, 0.0
        if "lam" in weights:
            sums = context.scratch if form == "code" else update_scratch(context)
            pulled = losses.class_center(
                features,
                batch.labels,
                class_means(sums),
                sums["count"],
                max_margin=tau,
                form=form,
            )
            pulled = context.mean(pulled) * (batch.where.sum() if form == "paper" else 1)
            total = total + weights["lam"] * pulled
        if "gamma" in weights:
            decorrelated = losses.feature_decorrelation(features, form=form, where=batch.where)
            total = total + weights["gamma"] * decorrelated
        return total

    weights = nonzero(lam=lam, gamma=gamma)
    return Method(
        "fedlf",
        loss=Partial(loss, alpha),
        regularizer=Partial(regularizer, weights, tau) if weights else None,
        scratch=(centers if form == "code" else zero_sums) if lam else None,
        update_scratch=update_scratch if lam and form == "paper" else None,
        head_bias=False,
    )
