"""FedRoD. Chen and Chao, On Bridging Generic and Personalized Federated Learning for Image
Classification, ICLR 2022.

The network and its generic head are trained with the balanced softmax, from which vacant classes
drop out. Each client also trains a head of its own, by plain SGD on the cross-entropy of the sum of
both heads' logits; that gradient reaches neither the network nor the generic head. The global model
is evaluated with the generic head, a client's own model is the new global one with both heads
added.

The authors' repository holds no code. Implementations start the own head as a copy of the generic
one, so that personal logits start at twice the generic ones (``init="copy"``); zero is the cleaner
start. The variant whose own head comes from a hyper-network is left out.
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
    """A generic head by balanced softmax, and own heads that are added to it.

    Args:
        init: what an own head starts from.
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
