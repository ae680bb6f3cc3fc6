"""FedRS. Li and Zhan, FedRS: Federated Learning with Restricted Softmax for Label Distribution
Non-IID Data, KDD 2021.

By default, logits of missing classes are scaled by ``alpha``, as in the paper. The authors' code
(``form="code"``) scales every class according to its count, which also reduces the logits of rare
classes. The authors' classifier has no bias. Implementations in other repositories have a bias
(``head_bias=True``) and scale it together with the rest of the logit.
"""

from typing import Literal

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import Fraction, validated
from fedjax_skew.methods.base import Method


@validated("hparams.fedrs")
def fedrs(
    *, alpha: Fraction = 0.5, form: Literal["paper", "code"] = "paper", head_bias: bool = False
) -> Method:
    """Scales down the logits of missing classes (restricted softmax).

    Args:
        alpha: scale of a missing class.
        form: ``"paper"`` scales missing classes by ``alpha``; ``"code"`` scales every class by
            ``alpha + (1 - alpha) n_c / max n``.
        head_bias: whether the classifier has a bias.
    """

    def loss(alpha, context):
        return context.mean(
            losses.restricted_softmax(
                context.outputs.logits,
                context.batch.labels,
                context.client.class_counts,
                alpha=alpha,
                form=form,
            )
        )

    return Method("fedrs", loss=Partial(loss, alpha), head_bias=head_bias)
