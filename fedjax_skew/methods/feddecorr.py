"""FedDecorr. Shi et al., Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous
Federated Learning, ICLR 2023.

The loss is the cross-entropy plus ``beta`` times the squared correlations of the features of a
batch. The authors' code multiplies the off-diagonal part of the printed mean by
``(B - 1)^2 / B * D / (D - 1)``, which is about 62 at their batch size of 64. Their ``beta`` of 0.1
applies to that scale, which is the default. With ``form="paper"``, the same ``beta`` has almost no
effect.
"""

from typing import Literal

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method


@validated("hparams.feddecorr")
def feddecorr(*, beta: NonNegative = 0.1, form: Literal["paper", "code"] = "code") -> Method:
    """Decorrelates the features of a batch to counteract dimensional collapse.

    Args:
        beta: weight of the decorrelation; 0 is FedAvg. The authors use 0.05 on CIFAR-100.
        form: scale of the decorrelation: that of the authors' code or of the printed mean.
    """

    def regularizer(beta, context):
        return beta * losses.dimensional_decorrelation(
            context.outputs.features, form=form, where=context.batch.where
        )

    return Method("feddecorr", regularizer=Partial(regularizer, beta) if beta else None)
