"""Fed-GraB. Xiao et al., Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient
Balancer, NeurIPS 2023.

Clients minimise a binary cross-entropy per class, with weights on the positive and on the negative
gradient of each class. A controller per client and class sets them: with the gradients accumulated
so far, ``e`` is the negative sum less the positive one, ``u`` grows by a proportional, an integral
and a derivative part of ``e``, and the weights are ``q(u)`` and ``q(-u)``, where ``q`` rises from 0
to 10 with ``q(0) = 1``. Controllers stay with their client and go on from round to round.

The authors' script never steps the head, so that 40 random heads are averaged once and stay; each
step bypasses the balancer of some classes at random, of the first one always; and local models get
the sample counts of other clients as weights. Here the head is trained, nothing is bypassed and
weights are right. The paper's estimate of the global prior, which would close the controllers of
large classes, is not called in the script and left out.
"""

import jax
import jax.numpy as jnp

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import LossContext, Method, MethodState, PyTree, Upload


@validated("hparams.fedgrab")
def fedgrab(
    *,
    proportional: NonNegative = 10.0,
    integral: NonNegative = 0.01,
    derivative: NonNegative = 0.1,
) -> Method:
    """Controllers balance positive and negative gradients of every class.

    Args:
        proportional: gain on the change of the error.
        integral: gain on the error.
        derivative: gain on the second difference of the error.
    """

    def init(context):
        zero = jnp.zeros(context.info.num_classes)
        names = ("positive", "negative", "output", "error", "older_error")
        return MethodState(None, {name: zero for name in names})

    def loss(context):
        state = context.scratch
        return context.mean(
            losses.weighted_binary_cross_entropy(
                context.outputs.logits,
                context.batch.labels,
                gain(state["output"]),
                gain(-state["output"]),
            )
        )

    def update_scratch(context):
        state = context.scratch
        positive, negative = gradients(context)
        positive, negative = state["positive"] + positive, state["negative"] + negative
        error = negative - positive
        output = (
            state["output"]
            + proportional * (error - state["error"])
            + integral * error
            + derivative * (error - 2 * state["error"] + state["older_error"])
        )
        return {
            "positive": positive,
            "negative": negative,
            "output": output,
            "error": error,
            "older_error": state["error"],
        }

    return Method(
        "fedgrab",
        init=init,
        loss=loss,
        scratch=lambda client: client.state,
        update_scratch=update_scratch,
        make_upload=lambda client, result: Upload(result.scratch),
    )


def gain(output: jax.Array) -> jax.Array:
    """``q(u) = (10 / 9) / (1 / 9 + exp(-u / 2))``, from 0 to 10, 1 at 0."""
    return 10 * jax.nn.sigmoid(output / 2 - jnp.log(9.0))


def gradients(context: LossContext) -> tuple[PyTree, PyTree]:
    """Sums ``[C]`` of the weighted gradients' magnitudes on positives and on negatives."""
    logits = jax.lax.stop_gradient(context.outputs.logits)
    where = context.batch.where[:, None]
    member = jax.nn.one_hot(context.batch.labels, logits.shape[-1])
    output = context.scratch["output"]
    weight = jnp.where(member > 0, gain(output), gain(-output))
    size = jnp.maximum(jnp.sum(context.batch.where), 1)
    gradient = jnp.where(where, jnp.abs(jax.nn.sigmoid(logits) - member) * weight, 0.0) / size
    return jnp.sum(gradient * member, 0), jnp.sum(gradient * (1 - member), 0)
