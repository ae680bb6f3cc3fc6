"""Focal loss. Lin et al., Focal Loss for Dense Object Detection, ICCV 2017; on clients: Sarkar et
al., Fed-Focal Loss for Imbalanced Data Classification in Federated Learning, 2020.

This is the softmax form with one ``alpha`` for all classes. Fed-Focal's selection of clients by
their training loss is not implemented.
"""

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, Positive, validated
from fedjax_skew.methods.base import Method


@validated("hparams.focal")
def focal(*, gamma: NonNegative = 2.0, alpha: Positive = 0.25) -> Method:
    """Trains with the focal loss, which gives well-classified samples a smaller weight.

    Args:
        gamma: strength of the focus on hard samples; 0 gives the cross-entropy times ``alpha``.
        alpha: scale of the loss.
    """

    def loss(gamma, alpha, context):
        return context.mean(
            losses.focal(context.outputs.logits, context.batch.labels, gamma=gamma, alpha=alpha)
        )

    return Method("focal", loss=Partial(loss, gamma, alpha))
