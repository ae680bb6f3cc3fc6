"""FedNH. Dai et al., Tackling Data Heterogeneity in Federated Learning with Class Prototypes, AAAI
2023.

The head holds one prototype of length 1 per class. Logits are the cosines between the features and
the prototypes, times a trained scalar; clients do not train the prototypes. After local training, a
client sends for each of its classes the direction of its mean normalised feature, weighted by its
samples of the class. The server moves each prototype towards the direction ``a`` of the sum of
these, ``W <- u(rho W + (1 - rho) a)``, where ``u`` scales to length 1. A class that no participant
holds keeps its prototype. Everything else is averaged without weights. Prototypes are initially
orthonormal, or only normalised if there are more classes than features.

With ``keep_models``, clients keep their trained models, which are evaluated with the current
prototypes as personal models; the authors report them in addition to the global model.
"""

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew.checks import Fraction, Positive, validated
from fedjax_skew.methods.base import (
    Client,
    LocalResult,
    Method,
    MethodState,
    Round,
    Upload,
    average,
    uniform,
)
from fedjax_skew.methods.class_sums import add_batch, class_means, zero_sums
from fedjax_skew.methods.fixed_head import cosine_model
from fedjax_skew.methods.local_layers import body_mask
from fedjax_skew.methods.server_training import with_head


@validated("hparams.fednh")
def fednh(*, rho: Fraction = 0.9, scale: Positive = 20.0, keep_models: bool = False) -> Method:
    """Uses class prototypes as a normalised head, which the server updates slowly.

    Args:
        rho: share of the old prototype in the new one.
        scale: initial value of the trained factor on the cosines; 20 for the authors' ResNets, 1
            for their CNN.
        keep_models: whether clients keep their trained models as personal models, which are then
            evaluated.
    """

    def make_upload(client: Client, result: LocalResult) -> Upload:
        def add(sums, batch):
            features, _ = client.model.features(
                result.params, result.stats, batch.x, where=batch.where
            )
            return add_batch(sums, unit(features), batch)

        sums = client.fold(add, zero_sums(client))
        sent = unit(class_means(sums)) * sums["count"][:, None]
        kept = {"params": result.params, "stats": result.stats} if keep_models else None
        return Upload(kept, None, {"sum": sent, "count": sums["count"]})

    def server(rho: float, rnd: Round):
        new, old = average(rnd), rnd.params["head"]["kernel"].T
        count = rnd.summed["count"][:, None]
        evidence = unit(rnd.summed["sum"] / jnp.maximum(count, 1))
        prototypes = jnp.where(count > 0, unit(rho * old + (1 - rho) * evidence), old)
        return new._replace(params=with_head(new.params, {"kernel": prototypes.T}))

    def personal(client: Client):
        params = with_head(client.state["params"], client.params["head"])
        return params, client.state["stats"]

    def init(context):
        return MethodState(None, {"params": context.params, "stats": context.stats})

    return Method(
        "fednh",
        model=lambda model: cosine_model(model, orthonormal, scale=scale),
        init=init if keep_models else None,
        trainable=lambda client, step: body_mask(client.params),
        make_upload=make_upload,
        weight=uniform,
        server=Partial(server, rho),
        personal=personal if keep_models else None,
    )


def orthonormal(key: jax.Array, features: int, classes: int) -> jax.Array:
    """Returns columns ``[features, classes]`` of length 1, orthogonal if C <= D."""
    made = jax.nn.initializers.orthogonal()(key, (features, classes), jnp.float32)
    return unit(made.T).T


def unit(rows: jax.Array) -> jax.Array:
    """Divides rows ``[..., D]`` by their length; zero rows remain zero."""
    return rows / jnp.maximum(jnp.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
