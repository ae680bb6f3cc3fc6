"""FedProto. Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI
2022.

Clients exchange prototypes, which are the mean features of their classes, instead of models. Each
client trains its own network on the cross-entropy plus ``lam`` times the squared distance between
features and the global prototype of their class. A client's prototypes are the means of the
features seen during its last local epoch, while the network changes. A class that no participant
sent keeps its prototype; in the authors' code it would disappear. In the first round there are no
prototypes, and the distance is 0.

With ``form="code"``, the distance is a mean over the dimensions, and a prototype is the unweighted
mean over the clients that hold the class. With ``form="paper"``, the distance is a sum, so that
``lam`` is stronger by a factor of the number of dimensions, and clients are weighted by their
samples of the class.

There is no global model: the evaluated model is the initial one, and only the accuracies of the
personal models are meaningful. With ``average=True``, models are also averaged as in FedAvg. This
is a different method, but tables with a single test set report it under this name.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Client, Method, MethodState, Round, ServerResult, Upload
from fedjax_skew.methods.class_sums import add_batch, class_means, zero_sums
from fedjax_skew.methods.server_training import with_head

_NEVER = -1e9  # Logit of a class that must not be predicted.


@validated("hparams.fedproto")
def fedproto(
    *,
    lam: NonNegative = 1.0,
    form: Literal["paper", "code"] = "code",
    average: bool = False,
    predict: Literal["head", "prototype"] = "head",
) -> Method:
    """Shares class prototypes between clients instead of models.

    Args:
        lam: weight of the distance; the authors use 1 on MNIST and FEMNIST, 0.1 on CIFAR-10.
        form: scale of the distance and weights of the prototypes, as described in the module.
        average: whether to also average the models, so that there is a global model.
        predict: whether a personal model predicts with its ``"head"``, or by the nearest global
            ``"prototype"`` among the classes that the client holds.
    """

    def init(context):
        if predict == "prototype" and "bias" not in context.params["head"]:
            raise ValueError(
                "hparams.fedproto.predict='prototype' needs a head with bias, which this model or "
                "another method leaves out; use 'head'."
            )
        width, classes = context.params["head"]["kernel"].shape
        server = {"prototypes": jnp.zeros((classes, width)), "known": jnp.zeros(classes, bool)}
        return MethodState(
            server, None if average else {"params": context.params, "stats": context.stats}
        )

    def regularizer(lam, context):
        server = context.client.server
        distance = losses.prototype_distance(
            context.outputs.features,
            context.batch.labels,
            server["prototypes"],
            server["known"],
            form=form,
        )
        return lam * context.mean(distance)

    def update_scratch(context):
        old = jax.tree.map(lambda a: jnp.where(context.epoch_start, 0.0, a), context.scratch)
        return add_batch(old, context.outputs.features, context.batch)

    def make_upload(client, result):
        means, held = class_means(result.scratch), result.scratch["count"] > 0
        weight = jnp.where(held, client.class_counts if form == "paper" else 1.0, 0.0)
        kept = None if average else {"params": result.params, "stats": result.stats}
        return Upload(kept, None, {"sum": means * weight[:, None], "weight": weight})

    def update_server_state(rnd: Round):
        weight = rnd.summed["weight"]
        new = rnd.summed["sum"] / jnp.maximum(weight, 1e-12)[:, None]
        old, sent = rnd.state, weight > 0
        return {
            "prototypes": jnp.where(sent[:, None], new, old["prototypes"]),
            "known": old["known"] | sent,
        }

    def own_model(client: Client):
        if average:
            return client.params, client.stats
        return client.state["params"], client.state["stats"]

    def personal(client: Client):
        params, stats = own_model(client)
        if predict == "head":
            return params, stats
        prototypes, known = client.server["prototypes"], client.server["known"]
        return with_head(params, nearest(prototypes, known & (client.class_counts > 0))), stats

    return Method(
        "fedproto",
        init=init,
        regularizer=Partial(regularizer, lam) if lam else None,
        scratch=zero_sums,
        update_scratch=update_scratch,
        start=None if average else own_model,
        make_upload=make_upload,
        update_server_state=update_server_state,
        server=None if average else _keep_model,
        personal=None if average and predict == "head" else personal,
        needs_linear_head=predict == "prototype",
    )


def nearest(prototypes: jax.Array, allowed: jax.Array) -> dict[str, jax.Array]:
    """Returns the linear head whose largest logit is that of the nearest allowed prototype.

    ``-|h - p|^2`` and ``2 h p - |p|^2`` differ by ``|h|^2``, which is the same for all classes.
    """
    bias = jnp.where(allowed, -jnp.sum(jnp.square(prototypes), -1), _NEVER)
    return {"kernel": 2 * prototypes.T, "bias": bias}


def _keep_model(rnd: Round) -> ServerResult:
    return ServerResult(rnd.params, rnd.stats, rnd.state)
