"""FedDecorr. Shi et al., Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous
Federated Learning, ICLR 2023.

Cross-entropy plus ``beta`` times the squared correlations of the features of a batch. The authors'
code computes ``(B - 1)^2 / B * D / (D - 1)`` times the off-diagonal part of the printed mean, 62
times at their batch size of 64, and its ``beta`` of 0.1 belongs to that scale: the default here.
With ``form="paper"`` the same ``beta`` has next to no effect.
"""

from typing import Literal

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method


@validated("hparams.feddecorr")
def feddecorr(*, beta: NonNegative = 0.1, form: Literal["paper", "code"] = "code") -> Method:
    """Features of a batch are decorrelated against dimensional collapse.

    Args:
        beta: weight of the decorrelation; 0 is FedAvg. The authors use 0.05 on CIFAR-100.
        form: scale of the decorrelation, that of the authors' code or the printed mean.
    """

    def regularizer(context):
        return beta * losses.dimensional_decorrelation(
            context.outputs.features, form=form, where=context.batch.where
        )

    return Method("feddecorr", regularizer=regularizer if beta else None)
