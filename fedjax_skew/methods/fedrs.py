"""FedRS. Li and Zhan, FedRS: Federated Learning with Restricted Softmax for Label Distribution
Non-IID Data, KDD 2021.

By default the paper's rule: logits of missing classes are scaled by ``alpha``. The authors' code,
``form="code"``, scales every class by its count, which also lowers rare present classes. The
authors' classifier has no bias. Copies in other repositories keep it (``head_bias=True``) and scale
it together with the rest of the logit.
"""

from typing import Literal

from fedjax_skew import losses
from fedjax_skew.checks import Fraction, validated
from fedjax_skew.methods.base import Method


@validated("hparams.fedrs")
def fedrs(
    *, alpha: Fraction = 0.5, form: Literal["paper", "code"] = "paper", head_bias: bool = False
) -> Method:
    """Restricted softmax: logits of missing classes are scaled down.

    Args:
        alpha: scale of a missing class.
        form: ``"paper"`` scales missing classes by ``alpha``; ``"code"`` scales every class by
            ``alpha + (1 - alpha) n_c / max n``.
        head_bias: give the classifier a bias.
    """

    def loss(context):
        return context.mean(
            losses.restricted_softmax(
                context.outputs.logits,
                context.batch.labels,
                context.client.class_counts,
                alpha=alpha,
                form=form,
            )
        )

    return Method("fedrs", loss=loss, head_bias=head_bias)
