"""FedConcat. Diao, Li and He, Exploiting Label Skews in Federated Learning with Model
Concatenation, AAAI 2024.

In the first phase, clients are clustered by their label histograms with k-means, and each cluster
runs its own FedAvg from the same initial model. A cluster without participants in a round keeps its
model. In the second phase, the clusters' encoders are frozen and their features are concatenated,
and all clients train one linear head on them, for a few batches per round. Clients have equal
weights in this phase, because they all take the same number of steps.

Frozen encoders run in evaluation mode; the published code leaves them in training mode, so that the
statistics of batch normalisation keep changing. During the first phase, the evaluated prediction is
the mean probability of the cluster models. The following are not implemented: FedConcat-ID, which
clusters by the predictions of trained client models; clusters of limited size; and noise on the
histograms.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_skew import trees
from fedjax_skew.checks import NumRounds, NumSteps, PositiveInt, validated
from fedjax_skew.errors import import_extra
from fedjax_skew.methods.base import (
    Client,
    Evaluation,
    InitContext,
    LocalResult,
    Method,
    MethodState,
    NextPhase,
    PyTree,
    Round,
    ServerResult,
    Upload,
    uniform,
)
from fedjax_skew.methods.server_training import new_head
from fedjax_skew.models.functional import Model, Outputs, head


@validated("hparams.fedconcat")
def fedconcat(
    *,
    num_clusters: PositiveInt = 5,
    encoder_rounds: NumRounds = 50,
    head_steps: NumSteps = 3,
    head_init: Literal["random", "concatenated"] = "random",
) -> Method:
    """Trains one encoder per cluster of similar clients, then a common head on all encoders.

    Args:
        num_clusters: number of clusters and encoders.
        encoder_rounds: rounds of the first phase; the remaining rounds train the head.
        head_steps: local steps per client and round in the second phase.
        head_init: ``"random"``, or ``"concatenated"`` to start from the concatenation of the
            clusters' heads, with the sum of their biases.
    """

    def init(context: InitContext) -> MethodState:
        def every_cluster(leaf):
            return jnp.broadcast_to(leaf, (num_clusters, *leaf.shape)).copy()

        seed = int(jax.random.randint(context.key, (), 0, 2**31 - 1))
        return MethodState(
            {
                "cluster": jnp.asarray(cluster_clients(context.class_counts, num_clusters, seed)),
                "params": jax.tree.map(every_cluster, context.params),
                "stats": jax.tree.map(every_cluster, context.stats),
            }
        )

    def make_upload(client: Client, result: LocalResult) -> Upload:
        weight = client.num_samples * jax.nn.one_hot(
            client.server["cluster"][client.id], num_clusters
        )

        def spread(tree):
            return jax.tree.map(lambda a: jnp.multiply.outer(weight, a), tree)

        delta = optax.tree.sub(result.params, result.start)
        return Upload(
            summed={"delta": spread(delta), "stats": spread(result.stats), "weight": weight}
        )

    def transition(context: InitContext, params: PyTree, stats: PyTree, server: PyTree):
        encoders = {"params": server["params"], "stats": server["stats"]}
        heads = server["params"]["head"]
        kernel = heads["kernel"].reshape(-1, heads["kernel"].shape[-1])
        if head_init == "concatenated":
            start = {"kernel": kernel}
            if "bias" in heads:
                start["bias"] = jnp.sum(heads["bias"], 0)
        else:
            start = new_head(context.key, params["head"], kernel.shape[0])
        return {"head": start}, {"encoders": encoders}

    second = Method("fedconcat", weight=uniform, server=_keep_encoders, local_steps=head_steps)
    return Method(
        "fedconcat",
        init=init,
        start=_start,
        make_upload=make_upload,
        server=_average_clusters,
        eval_model=_cluster_models,
        predict=_predict_clusters,
        next_phase=NextPhase(encoder_rounds, second, concatenated, transition),
    )


def cluster_clients(class_counts: np.ndarray, num_clusters: int, seed: int) -> np.ndarray:
    """Returns the cluster of each client, int32 ``[K]``, by k-means on label histograms.

    If there are fewer distinct histograms than clusters, the last clusters are empty.
    """
    cluster = import_extra("sklearn.cluster", "methods")
    num_clients = class_counts.shape[0]
    if num_clusters > num_clients:
        raise ValueError(
            f"hparams.fedconcat.num_clusters={num_clusters} must be at most num_clients="
            f"{num_clients}."
        )
    histograms = class_counts / np.maximum(class_counts.sum(-1, keepdims=True), 1)
    different = len(np.unique(histograms, axis=0))
    means = cluster.KMeans(min(num_clusters, different), n_init=10, random_state=seed)
    return means.fit_predict(histograms).astype(np.int32)


def concatenated(model: Model) -> Model:
    """Returns the model whose features are those of all encoders, stored in its ``stats``."""

    def features(params, stats, x, *, train=False, where=None):
        encoders = stats["encoders"]
        made = jax.vmap(lambda p, s: model.features(p, s, x)[0])(
            encoders["params"], encoders["stats"]
        )
        return _side_by_side(made), stats

    def apply(params, stats, x, *, train=False, where=None):
        made, stats = features(params, stats, x)
        return Outputs(head(params, made), made), stats

    def init(key, x):
        params, stats = model.init(key, x)
        one = jax.tree.map(lambda a: a[None], {"params": params, "stats": stats})
        return {"head": params["head"]}, {"encoders": one}

    return Model(init, apply, features)


def _side_by_side(features: jax.Array) -> jax.Array:
    """Reshapes ``[G, B, D]`` to ``[B, G * D]``."""
    return jnp.swapaxes(features, 0, 1).reshape(features.shape[1], -1)


def _start(client: Client) -> tuple[PyTree, PyTree]:
    cluster = client.server["cluster"][client.id]
    return trees.index((client.server["params"], client.server["stats"]), cluster)


def _average_clusters(rnd: Round) -> ServerResult:
    """Averages the models of each cluster; the global model is their mean and is not used."""
    sums, state = rnd.summed, rnd.state
    weight = sums["weight"]

    def divided(a):
        return a / jnp.maximum(weight, 1e-12).reshape(-1, *[1] * (a.ndim - 1))

    def averaged(new, old):
        return jnp.where((weight > 0).reshape(-1, *[1] * (old.ndim - 1)), divided(new), old)

    params = jax.tree.map(lambda p, d: p + divided(d), state["params"], sums["delta"])
    stats = jax.tree.map(averaged, sums["stats"], state["stats"])
    mean = jax.tree.map(lambda a: jnp.mean(a, 0), (params, stats))
    return ServerResult(mean[0], mean[1], {**state, "params": params, "stats": stats})


def _cluster_models(evaluation: Evaluation) -> tuple[PyTree, PyTree]:
    return evaluation.state["params"], evaluation.state["stats"]


def _predict_clusters(model: Model, eval_model: PyTree, x: jax.Array) -> Outputs:
    outputs = jax.vmap(lambda p, s: model.apply(p, s, x)[0])(*eval_model)
    mean = jnp.mean(jax.nn.softmax(outputs.logits), 0)
    return Outputs(jnp.log(jnp.maximum(mean, 1e-30)), _side_by_side(outputs.features))


def _keep_encoders(rnd: Round) -> ServerResult:
    """Averages the heads and returns the encoders unchanged, without the rounding of a mean."""
    return ServerResult(optax.tree.add(rnd.params, rnd.mean_delta), rnd.stats, rnd.state)
