"""FedLC-LT. Wang, Wang and Shen, Logit Calibration for Non-IID and Long-Tailed Data in Federated
Learning, 2022. The paper calls the method FedLC; the suffix distinguishes it from the other method
of that name.

Clients send the mean and the variance of their trained model's logits for each of their classes,
but no samples. The server keeps the latest moments of every client, and computes for each client
synthetic logits from its nearest neighbours among the clients seen so far. From a client's second
participation on, these regularise its logits (L_Local) and weight its classes (class importance).
Classes that no neighbour holds are not calibrated.

The server averages the models as in FedAvg and then trains on its labelled auxiliary data. First,
it learns the ensemble's directions r and the class query a, b, by the cross-entropy of both logits
plus L_Global. Second, it trains the global model by L_Global towards the ensemble. Both stages take
J steps. r, a and b persist between rounds. The class query is part of the evaluated model, but not
of the model that clients train or that is distilled. The clients and the ensemble do not know it,
so they would undo it, the server would restore it, and the parameters of the head would grow from
round to round.

The only optimiser that the paper names is SGD with a learning rate of 0.1, which is used on the
server, too. Adam's updates do not shrink with the gradient, and the gradient of L_Global is small:
with Adam, a CNN on long-tailed CIFAR-10 stayed at or returned to chance level. The calibration uses
a tenth of the learning rate, because accuracy fluctuates from round to round with the full rate.

Each of the four parts of the ablation table can be disabled; without any of them the method is
FedAvg.
"""

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew.checks import Fraction, NonNegative, NumSteps, Positive, PositiveInt, validated
from fedjax_skew.losses import (
    class_importance_weights,
    cross_entropy,
    local_logit_calibration,
    logit_wasserstein,
    synthetic_logits,
)
from fedjax_skew.methods.base import (
    Client,
    Evaluation,
    LocalResult,
    LossContext,
    Method,
    MethodState,
    PyTree,
    Round,
    ServerResult,
    Upload,
)
from fedjax_skew.methods.fedlc_lt_server import distill, queried_head
from fedjax_skew.methods.server_training import taking_part, unless_empty, with_head


@validated("hparams.fedlc_lt")
def fedlc_lt(
    *,
    neighbors: Fraction = 0.25,
    temperature: Positive = 4.0,
    normalize: bool = True,
    steps: NumSteps = 100,
    lam: NonNegative = 1e-3,
    batch_size: PositiveInt = 64,
    server_lr: Positive = 0.1,
    calibration_lr: Positive = 0.01,
    l_local: bool = True,
    l_global: bool = True,
    class_importance: bool = True,
    class_query: bool = True,
) -> Method:
    """Calibrates logits with those of similar clients and by distillation on the server.

    Args:
        neighbors: number of neighbours, as a fraction of all clients; at least one is used.
        temperature: temperature of the clients' softened logits.
        normalize: whether to divide distances by the number of classes that two clients share.
        steps: J, the number of steps per round of the calibration and of the distillation.
        lam: weight of the squared norm of a client's parameters in the ensemble.
        batch_size: auxiliary samples per server step.
        server_lr: learning rate of the distilled model.
        calibration_lr: learning rate of r, a and b.
        l_local: whether to regularise the clients' mean logits towards the synthetic ones.
        l_global: whether to distil the ensemble into the global model.
        class_importance: whether to weight the classes in the clients' cross-entropy.
        class_query: whether to scale and shift the global model's logits by class.
    """
    local, central = l_local or class_importance, l_global or class_query

    def init(context):
        clients, classes = context.info.num_clients, context.info.num_classes
        state = {}
        if local:
            table = jnp.zeros((clients, classes, classes))
            state |= {"mean": table, "var": table, "synthetic": table}
            state |= {"counts": table[..., 0], "known": table[..., 0]}
        if l_global:
            state |= {"r": jnp.zeros((clients, classes))}
        if class_query:
            state |= {"a": jnp.ones(classes), "b": jnp.zeros(classes)}
        return MethodState(state)

    def importance(temperature, context: LossContext) -> jax.Array:
        mean, synthetic, usable = _own_rows(context.client)
        weights = class_importance_weights(mean, synthetic, usable, temperature=temperature)
        labels = context.batch.labels
        return context.mean(weights[labels] * cross_entropy(context.outputs.logits, labels))

    def pull(temperature, context: LossContext) -> jax.Array:
        _, synthetic, usable = _own_rows(context.client)
        labels = context.batch.labels
        return local_logit_calibration(
            context.outputs.logits,
            labels,
            synthetic,
            temperature=temperature,
            where=context.batch.where & usable[labels],
        )

    def update_server_state(rnd: Round):
        state, part = rnd.state, taking_part(rnd) > 0

        def put(table, rows):
            keep = part.reshape(-1, *[1] * (rows.ndim - 1))
            return table.at[rnd.ids].set(jnp.where(keep, rows, table[rnd.ids]))

        new = {name: put(state[name], rnd.stacked[name]) for name in ("mean", "var")}
        new["counts"] = put(state["counts"], rnd.class_counts)
        size = new["counts"].shape[0]
        if size > 1:
            number = min(max(1, round(neighbors * size)), size - 1)
            new |= neighborhood(new, number, normalize=normalize)
        return {**state, **new}

    def server(lam, server_lr, calibration_lr, rnd: Round) -> ServerResult:
        return unless_empty(
            rnd,
            distill(
                rnd,
                steps=steps,
                lam=lam,
                batch_size=batch_size,
                server_lr=server_lr,
                calibration_lr=calibration_lr,
                l_global=l_global,
                query=class_query,
            ),
        )

    def eval_model(evaluation: Evaluation):
        a, b = evaluation.state["a"], evaluation.state["b"]
        classifier = queried_head(evaluation.params["head"], a, b)
        return with_head(evaluation.params, classifier), evaluation.stats

    return Method(
        "fedlc_lt",
        init=init if local or central else None,
        loss=Partial(importance, temperature) if class_importance else None,
        regularizer=Partial(pull, temperature) if l_local else None,
        make_upload=_upload if local else None,
        update_server_state=update_server_state if local else None,
        server=Partial(server, lam, server_lr, calibration_lr) if central else None,
        eval_model=eval_model if class_query else None,
        needs_client_models=l_global,
        needs_labelled_data=central,
        needs_linear_head=class_query,
    )


def class_moments(client: Client, params: PyTree, stats: PyTree) -> tuple[jax.Array, jax.Array]:
    """Returns mean and variance ``[C, C]`` of a model's logits on the client's samples per class.

    Batches are merged by the algorithm of Chan, Golub and LeVeque, because the difference of two
    large sums of squares would lose the variance to cancellation.
    """
    classes = client.info.num_classes

    def merge(carry, batch):
        count, mean, square = carry
        logits = client.model.apply(params, stats, batch.x, where=batch.where)[0].logits
        member = jax.nn.one_hot(batch.labels, classes) * batch.where[:, None]
        new = jnp.sum(member, 0)[:, None]
        average = member.T @ logits / jnp.maximum(new, 1)
        spread = member.T @ jnp.square(logits - average[batch.labels])
        total = jnp.maximum(count + new, 1)
        shift = average - mean
        return (
            count + new,
            mean + shift * new / total,
            square + spread + jnp.square(shift) * count * new / total,
        )

    zero = jnp.zeros((classes, classes))
    count, mean, square = client.fold(merge, (jnp.zeros((classes, 1)), zero, zero))
    return mean, square / jnp.maximum(count, 1)


def _own_rows(client: Client) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns a client's last mean logits, its synthetic logits, and the classes with both."""
    mean, synthetic, known, counts = (
        client.server[name][client.id] for name in ("mean", "synthetic", "known", "counts")
    )
    return mean, synthetic, (known > 0) & (counts > 0)


def _upload(client: Client, result: LocalResult) -> Upload:
    mean, var = class_moments(client, result.params, result.stats)
    return Upload(stacked={"mean": mean, "var": var})


def neighborhood(table: PyTree, number: int, *, normalize: bool) -> PyTree:
    """Returns every client's synthetic logits, and the classes that any neighbour holds.

    Args:
        table: ``mean`` and ``var`` ``[K, C, C]`` and ``counts [K, C]``, 0 for clients not yet seen.
        number: number of neighbours per client.
        normalize: as in ``logit_wasserstein``.
    """
    held = (table["counts"] > 0).astype(jnp.float32)
    distances = logit_wasserstein(table["mean"], table["var"], held, normalize=normalize)
    distances = jnp.where(jnp.any(held > 0, -1), distances, jnp.inf)
    return {
        "synthetic": synthetic_logits(table["mean"], distances, num_neighbors=number),
        "known": synthetic_logits(held, distances, num_neighbors=number),
    }
