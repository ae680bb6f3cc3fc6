"""FedRoD. Chen and Chao, On Bridging Generic and Personalized Federated Learning for Image
Classification, ICLR 2022.

The network and its generic head are trained with the balanced softmax, from which vacant classes
are excluded. Each client also trains a personal head, by plain SGD on the cross-entropy of the sum
of both heads' logits; this gradient flows neither to the network nor to the generic head. The
global model is evaluated with the generic head. A client's personal model is the new global model
with the sum of both heads.

The authors' repository contains no code. Other implementations initialise the personal head with a
copy of the generic head (``init="copy"``), so that personal logits start at twice the generic ones;
the default is to start from zero. The variant whose personal head comes from a hyper-network is not
implemented.
"""

from typing import Literal

import jax
import optax

from fedjax_skew import losses
from fedjax_skew.checks import validated
from fedjax_skew.methods.base import Client, Method, MethodState, Upload
from fedjax_skew.methods.personal_head import head_gradient
from fedjax_skew.methods.server_training import with_head
from fedjax_skew.models.functional import head


@validated("hparams.fedrod")
def fedrod(*, init: Literal["zero", "copy"] = "zero") -> Method:
    """Trains a generic head with the balanced softmax, and personal heads that are added to it.

    Args:
        init: initial value of a personal head: ``"zero"``, or a ``"copy"`` of the generic head.
    """

    def make_state(context):
        generic = context.params["head"]
        return MethodState(None, generic if init == "copy" else optax.tree.zeros_like(generic))

    def loss(context):
        return context.mean(
            losses.balanced_softmax(
                context.outputs.logits, context.batch.labels, context.client.class_counts
            )
        )

    def update_scratch(context):
        own, outputs = context.scratch, context.outputs
        logits = outputs.logits + head({"head": own}, outputs.features)
        gradient = head_gradient(context, logits, own)
        return optax.tree.add_scale(own, -context.client.lr, gradient)

    def personal(client: Client):
        both = jax.tree.map(lambda a, b: a + b, client.params["head"], client.state)
        return with_head(client.params, both), client.stats

    return Method(
        "fedrod",
        init=make_state,
        loss=loss,
        scratch=lambda client: client.state,
        update_scratch=update_scratch,
        make_upload=lambda client, result: Upload(result.scratch),
        personal=personal,
        needs_linear_head=True,
    )
