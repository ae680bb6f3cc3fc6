"""FedNTD. Lee et al., Preservation of the Global Knowledge by Not-True Distillation in Federated
Learning, NeurIPS 2022.

The defaults are those of the published configuration, ``beta = temperature = 1``.
"""

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, Positive, validated
from fedjax_skew.methods.base import Method


@validated("hparams.fedntd")
def fedntd(*, beta: NonNegative = 1.0, temperature: Positive = 1.0) -> Method:
    """Distils the global model among all classes but the true one.

    Args:
        beta: weight of the distillation.
        temperature: temperature of both softmaxes; the loss is multiplied by its square.
    """

    def regularizer(beta, temperature, context):
        return beta * context.mean(
            losses.not_true_distillation(
                context.outputs.logits,
                context.batch.labels,
                context.client.teacher(context.batch).logits,
                temperature=temperature,
            )
        )

    return Method("fedntd", regularizer=Partial(regularizer, beta, temperature) if beta else None)
