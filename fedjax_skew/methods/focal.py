"""Focal loss. Lin et al., Focal Loss for Dense Object Detection, ICCV 2017; on clients: Sarkar et
al., Fed-Focal Loss for Imbalanced Data Classification in Federated Learning, 2020.

The softmax form with one ``alpha`` for all classes. Fed-Focal's choice of clients by their
training loss is not part of it.
"""

from fedjax_skew import losses
from fedjax_skew.methods import checks
from fedjax_skew.methods.base import Method


def focal(*, gamma: float = 2.0, alpha: float = 0.25) -> Method:
    """Focal loss: samples that are already well classified count less.

    Args:
        gamma: how fast the weight of an easy sample falls.
        alpha: scale of the whole loss.
    """
    checks.at_least("focal", "gamma", gamma, 0)
    checks.positive("focal", "alpha", alpha)

    def loss(context):
        return context.mean(
            losses.focal(context.outputs.logits, context.batch.labels, gamma=gamma, alpha=alpha)
        )

    return Method("focal", loss=loss)
