"""FedLC. Zhang et al., Federated Learning with Label Distribution Skew via Logits Calibration,
ICML 2022.

The default is the ordinary softmax of the calibrated logits, as in every known implementation. With
``form="paper"``, the denominator omits the true class, as printed, so that the loss has no lower
bound. The paper does not state ``tau``: 1.0 is common, and 0.1 and 0.5 appear in the tables of
other papers.
"""

from typing import Literal

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method


@validated("hparams.fedlc")
def fedlc(
    *, tau: NonNegative = 1.0, min_count: NonNegative = 0.0, form: Literal["paper", "code"] = "code"
) -> Method:
    """Calibrates logits by a margin that grows as a class becomes rarer on the client.

    Args:
        tau: strength of the margin ``tau * n_c^(-1/4)``.
        min_count: lower bound of the counts; 0 excludes vacant classes from the softmax.
        form: ``"code"`` for the ordinary softmax; ``"paper"`` for the printed denominator, which
            omits the true class.
    """

    def loss(tau, min_count, context):
        return context.mean(
            losses.fedlc(
                context.outputs.logits,
                context.batch.labels,
                context.client.class_counts,
                tau=tau,
                min_count=min_count,
                form=form,
            )
        )

    return Method("fedlc", loss=Partial(loss, tau, min_count or None))
