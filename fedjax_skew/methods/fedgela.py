"""FedGELA. Fan et al., Federated Learning with Bilateral Curation for Partially Class-Disjoint
Data, NeurIPS 2023.

The head is a fixed simplex equiangular tight frame. On a client, column c is scaled by ``C n_c /
n``, so that the classes that the client holds also use the angular space of those that it lacks;
the logit of a vacant class is 0. The global model uses the unscaled frame. Features are projected
(Dense, ReLU, Dense) and batch-normalised, and logits are divided by a temperature. Clients are
weighted by their number of batches.

The authors' README sets the temperature to 1e-5, which multiplies logits by 100,000 and, together
with their clipping, turns the loss into that of a perceptron. The default here is 0.2, which is the
default of their argument parser. A client's personal model is the new global model with the
client's scaled frame; the authors use the client's trained model.
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
    """Uses a fixed simplex frame whose columns clients scale by their class counts.

    Args:
        width: output size of the projection; 0 disables the projection.
        temperature: divisor of the logits.
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
    """Returns ``C n_c / n`` for every class ``[C]``."""
    return client.info.num_classes * client.class_counts / jnp.maximum(client.num_samples, 1)
