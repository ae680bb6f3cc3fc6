"""MOON. Li et al., Model-Contrastive Federated Learning, CVPR 2021.

A client keeps the local model of its last participation. Until it has one its contrastive loss is
0, which is what the published code does in the first round. Both other models run in evaluation
mode. ``mu = 1`` is the paper's value for CIFAR-100 and TinyImageNet; it uses 5 on CIFAR-10. The
published network has a projection head of 256 between backbone and classifier
(``projection=256``), and a fair comparison gives it to the other methods too; by default the
network stays as configured.
"""

import jax.numpy as jnp

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, NonNegativeInt, Positive, validated
from fedjax_skew.methods.base import Method, MethodState, Upload


@validated("hparams.moon")
def moon(
    *, mu: NonNegative = 1.0, temperature: Positive = 0.5, projection: NonNegativeInt = 0
) -> Method:
    """Features are drawn to the global model's, away from the client's previous model's.

    Args:
        mu: weight of the contrastive loss.
        temperature: of the contrast.
        projection: width of a projection head below the classifier; 0 for none.
    """

    def keep(params, stats, seen):
        return {"params": params, "stats": stats, "seen": jnp.bool_(seen)}

    def regularizer(context):
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
        regularizer=regularizer,
        make_upload=lambda client, result: Upload(keep(result.params, result.stats, True)),
        projection=projection,
    )
