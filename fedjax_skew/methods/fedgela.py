"""FedGELA. Fan et al., Federated Learning with Bilateral Curation for Partially Class-Disjoint
Data, NeurIPS 2023.

The head is a fixed simplex equiangular tight frame. On a client column c is scaled by ``C n_c /
n``, so that classes it holds get the directions and the room of those it lacks; a vacant class
keeps the logit 0. The global model uses the frame itself. Features are projected (Dense, ReLU,
Dense) and batch-normalised, and logits divided by a temperature. Clients are weighted by batches.

The authors' README sets the temperature to 1e-5, which multiplies logits by 100,000 and, with their
clipping, makes a perceptron; their parser has 0.2, the default here. A client's own model is the
new global one with the client's scaled frame; the authors take the client's trained model.
"""

import jax
import jax.numpy as jnp

from fedjax_skew.checks import NonNegativeInt, Positive, validated
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import Client, Method, batch_count
from fedjax_skew.methods.fixed_head import normalized_model, random_etf
from fedjax_skew.methods.local_layers import body_mask
from fedjax_skew.methods.server_training import with_head


@validated("hparams.fedgela")
def fedgela(*, width: NonNegativeInt = 512, temperature: Positive = 0.2) -> Method:
    """A fixed simplex frame, whose columns a client scales by its classes.

    Args:
        width: output size of the projection; 0 leaves it out.
        temperature: divides the logits.
    """

    def make_head(key, features, classes):
        return random_etf(key, features, classes, "hparams.fedgela.width")

    def loss(context):
        logits = context.outputs.logits * scales(context.client)
        return context.mean(cross_entropy(logits, context.batch.labels))

    def personal(client: Client):
        kernel = client.params["head"]["kernel"] * scales(client)
        return with_head(client.params, {"kernel": kernel}), client.stats

    return Method(
        "fedgela",
        model=lambda model: normalized_model(model, make_head, temperature=temperature),
        projection=width,
        loss=loss,
        trainable=lambda client, step: body_mask(client.params),
        weight=batch_count,
        personal=personal,
    )


def scales(client: Client) -> jax.Array:
    """``C n_c / n`` of every class ``[C]``."""
    return client.info.num_classes * client.class_counts / jnp.maximum(client.num_samples, 1)
