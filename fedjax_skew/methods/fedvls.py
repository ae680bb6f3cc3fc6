"""FedVLS. Guo et al., Exploring Vacant Classes in Label-Skewed Federated Learning, AAAI 2025.

The loss is ``L_cal + lam * L_dis + logit_weight * L_logit`` (eq. 6). ``lam=0`` and
``logit_weight=0`` disable a term. The authors' code multiplies ``L_logit`` by 0.005, where eq. 6
prints 1, and differs from the equations as follows: in ``L_logit``, it sets the entry of a sample's
own class to 0 instead of omitting it, and subtracts the log prior from the logits; in ``L_cal``, it
adds 1e-9 to the prior instead of excluding vacant classes; and its teacher runs in training mode.

The printed ``L_logit`` has no lower bound, so its gradient never vanishes. On MNIST
(``configs/mnist.py``: Dirichlet 0.05, MLP, momentum 0.9), accuracy falls from 62.4 % in round 3 to
23.1 % in round 20 even with the small weight, whereas the form of the code, which is bounded,
trains. ``form="code"`` is therefore the default, and ``form="paper"`` computes the printed
equations. The authors' code also trains without weight decay and resets momentum every round, which
are settings of the run.
"""

from typing import Literal

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method, nonzero


@validated("hparams.fedvls")
def fedvls(
    *,
    lam: NonNegative = 0.1,
    logit_weight: NonNegative = 0.005,
    form: Literal["paper", "code"] = "code",
) -> Method:
    """Combines balanced softmax, distillation of vacant classes and logit suppression.

    Args:
        lam: weight of the distillation; the paper uses 0.1, and 0.5 with 100 classes or more.
        logit_weight: weight of the suppression; eq. 6 prints 1.
        form: ``"code"`` for the authors' code, ``"paper"`` for the printed equations; it applies to
            all three terms.
    """

    def loss(context):
        return context.mean(
            losses.balanced_softmax(
                context.outputs.logits,
                context.batch.labels,
                context.client.class_counts,
                eps=1e-9 if form == "code" else None,
            )
        )

    def regularizer(weights, context):
        logits, counts = context.outputs.logits, context.client.class_counts
        total = 0.0
        if "lam" in weights:
            teacher = context.client.teacher(context.batch, train=form == "code")
            distilled = losses.vacant_class_distillation(logits, teacher.logits, counts)
            total = total + weights["lam"] * context.mean(distilled)
        if "logit_weight" in weights:
            total = total + weights["logit_weight"] * losses.logit_suppression(
                logits, context.batch.labels, counts, form=form, where=context.batch.where
            )
        return total

    weights = nonzero(lam=lam, logit_weight=logit_weight)
    return Method(
        "fedvls", loss=loss, regularizer=Partial(regularizer, weights) if weights else None
    )
