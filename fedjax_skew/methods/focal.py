"""Focal loss. Lin et al., Focal Loss for Dense Object Detection, ICCV 2017; on clients: Sarkar et
al., Fed-Focal Loss for Imbalanced Data Classification in Federated Learning, 2020.

The softmax form with one ``alpha`` for all classes. Fed-Focal's choice of clients by their
training loss is not part of it.
"""

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, Positive, validated
from fedjax_skew.methods.base import Method


@validated("hparams.focal")
def focal(*, gamma: NonNegative = 2.0, alpha: Positive = 0.25) -> Method:
    """Focal loss: samples that are already well classified count less.

    Args:
        gamma: how fast the weight of an easy sample falls.
        alpha: scale of the whole loss.
    """

    def loss(context):
        return context.mean(
            losses.focal(context.outputs.logits, context.batch.labels, gamma=gamma, alpha=alpha)
        )

    return Method("focal", loss=loss)
