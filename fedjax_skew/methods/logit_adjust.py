"""Logit adjustment. Menon et al., Long-tail Learning via Logit Adjustment, ICLR 2021.

During training, the prior is that of the client (``form="local"``, the balanced softmax) or that of
all clients together (``form="global"``, for globally long-tailed data; clients then reveal their
class counts to the server). The shift is not applied at test time. ``form="post_hoc"`` trains with
plain cross-entropy and shifts the global model's logits by the global prior at test time instead.
"""

from typing import Literal

import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method, MethodState


@validated("hparams.logit_adjust")
def logit_adjust(
    *,
    tau: NonNegative = 1.0,
    form: Literal["local", "global", "post_hoc"] = "local",
    eps: NonNegative = 0.0,
) -> Method:
    """Shifts logits by the logarithm of the class prior.

    Args:
        tau: strength of the shift.
        form: ``"local"`` or ``"global"`` prior during training, or ``"post_hoc"`` shift.
        eps: constant added to the prior during training; 0 excludes vacant classes from the
            softmax.
    """

    def global_counts(context):
        return MethodState(jnp.asarray(context.class_counts.sum(0), jnp.float32))

    def loss(tau, eps, context):
        client = context.client
        counts = client.class_counts if form == "local" else client.server
        return context.mean(
            losses.balanced_softmax(
                context.outputs.logits, context.batch.labels, counts, tau=tau, eps=eps
            )
        )

    def eval_model(tau, evaluation):
        counts = evaluation.state
        # The logit of a class that no client holds is not shifted, as it was never trained.
        prior = jnp.where(counts > 0, counts / counts.sum(), 1.0)
        return evaluation.params, evaluation.stats, tau * jnp.log(prior)

    def predict(model, eval_model, x):
        params, stats, shift = eval_model
        outputs, _ = model.apply(params, stats, x)
        return outputs._replace(logits=outputs.logits - shift)

    if form != "post_hoc":
        return Method(
            "logit_adjust",
            init=global_counts if form == "global" else None,
            loss=Partial(loss, tau, eps or None),
        )
    return Method(
        "logit_adjust",
        init=global_counts,
        eval_model=Partial(eval_model, tau),
        predict=predict,
    )
