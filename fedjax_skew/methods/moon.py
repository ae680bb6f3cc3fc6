"""MOON. Li et al., Model-Contrastive Federated Learning, CVPR 2021.

A client keeps the local model of its last participation. Before its first participation, its
contrastive loss is 0, as in the first round of the published code. The global and the previous
model run in evaluation mode. The default ``mu = 1`` is the paper's value for CIFAR-100 and
TinyImageNet; on CIFAR-10 the paper uses 5. The published network has a projection head of width 256
between the backbone and the classifier (``projection=256``); for a fair comparison, the other
methods should use it, too. By default, the network is used as configured.
"""

import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, NonNegativeInt, Positive, validated
from fedjax_skew.methods.base import Method, MethodState, Upload


@validated("hparams.moon")
def moon(
    *, mu: NonNegative = 1.0, temperature: Positive = 0.5, projection: NonNegativeInt = 0
) -> Method:
    """Attracts features to the global model's and repels them from the previous model's.

    Args:
        mu: weight of the contrastive loss.
        temperature: temperature of the contrastive loss.
        projection: width of a projection head before the classifier; 0 for none.
    """

    def keep(params, stats, seen):
        return {"params": params, "stats": stats, "seen": jnp.bool_(seen)}

    def regularizer(mu, temperature, context):
        client, previous = context.client, context.client.state
        others, _ = client.model.apply(previous["params"], previous["stats"], context.batch.x)
        contrast = losses.model_contrastive(
            context.outputs.features,
            client.teacher(context.batch).features,
            others.features,
            temperature=temperature,
        )
        return mu * jnp.where(previous["seen"], context.mean(contrast), 0.0)

    return Method(
        "moon",
        init=lambda context: MethodState(None, keep(context.params, context.stats, False)),
        regularizer=Partial(regularizer, mu, temperature),
        make_upload=lambda client, result: Upload(keep(result.params, result.stats, True)),
        projection=projection,
    )
