"""FedVLS. Guo et al., Exploring Vacant Classes in Label-Skewed Federated Learning, AAAI 2025.

``L_cal + lam * L_dis + logit_weight * L_logit`` (eq. 6). ``lam=0`` or ``logit_weight=0`` leaves a
term out. The authors' code multiplies ``L_logit`` by 0.005, where eq. 6 prints 1, and differs in
form: it counts a sample's own class as 0 in ``L_logit`` instead of leaving it out, and subtracts
the log prior from the logits there; it adds 1e-9 to the prior of ``L_cal`` instead of dropping
vacant classes; and its teacher runs in training mode.

The printed ``L_logit`` has no lower bound, so its gradient never vanishes. On MNIST
(``configs/mnist.py``: Dirichlet 0.05, MLP, momentum 0.9) even the small weight lets accuracy fall
from 62.4 % in round 3 to 23.1 % in round 20, while the form of the code, which is bounded, trains.
So ``form="code"`` is the default, and ``form="paper"`` computes the printed equations. The authors'
code also trains without weight decay and resets momentum every round, which are settings of the
run.
"""

from typing import Literal

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method


@validated("hparams.fedvls")
def fedvls(
    *,
    lam: NonNegative = 0.1,
    logit_weight: NonNegative = 0.005,
    form: Literal["paper", "code"] = "code",
) -> Method:
    """Balanced softmax, distillation of vacant classes and suppression of wrong logits.

    Args:
        lam: weight of the distillation; the paper uses 0.1, and 0.5 with 100 classes or more.
        logit_weight: weight of the suppression; eq. 6 prints 1.
        form: the authors' code or the printed equations, for all three terms.
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

    def regularizer(context):
        logits, counts = context.outputs.logits, context.client.class_counts
        total = 0.0
        if lam:
            teacher = context.client.teacher(context.batch, train=form == "code")
            distilled = losses.vacant_class_distillation(logits, teacher.logits, counts)
            total = total + lam * context.mean(distilled)
        if logit_weight:
            total = total + logit_weight * losses.logit_suppression(
                logits, context.batch.labels, counts, form=form, where=context.batch.where
            )
        return total

    return Method("fedvls", loss=loss, regularizer=regularizer if lam or logit_weight else None)
