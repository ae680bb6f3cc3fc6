"""FedDyn. Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021.

A client minimises ``CE + a/2 ||w - x||^2 + a <w, h>``, where ``h`` is the sum of its past updates
``y - x``. At the minimum, ``-a h`` is the client's own gradient, so that the penalties of all
clients cancel at the optimum. The server adds the mean of all clients' ``h`` to the mean of the
cohort's models. As in the published code, both means are unweighted and ``a = alpha / (n / mean
n)``, so that the optimum is that of the sample-weighted objective; ``adapt_alpha=False`` uses the
same ``alpha`` for all clients, as in the paper.

Local momentum violates the first-order condition on which ``h`` relies; use the method with
``momentum=0``.
"""

from typing import Literal

import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import Positive, validated
from fedjax_skew.methods.base import Method, MethodState, ServerResult, Upload, uniform


@validated("hparams.feddyn")
def feddyn(
    *,
    alpha: Positive = 0.01,
    evaluate: Literal["cohort", "all", "server"] = "cohort",
    adapt_alpha: bool = True,
) -> Method:
    """Applies dynamic regularisation, which corrects clients by their own past gradients.

    Args:
        alpha: strength of the regularisation.
        evaluate: the evaluated model: ``"cohort"`` is the mean of the round's local models;
            ``"all"`` is the mean of every client's latest model, as in the published plots, for
            which each client keeps its model; ``"server"`` is the model from which training
            continues.
        adapt_alpha: whether to divide ``alpha`` by the ratio of the client's number of samples to
            the mean over all clients.
    """

    def init(context):
        h = optax.tree.zeros_like(context.params)
        mean_samples = jnp.float32(context.class_counts.sum() / context.info.num_clients)
        server = {"h": h, "mean_samples": mean_samples}
        kept = {"h": h}
        if evaluate != "server":
            server["reported"] = context.params
        if evaluate == "all":
            kept["latest"] = context.params
        return MethodState(server, kept)

    def regularizer(alpha, context):
        client = context.client
        strength = alpha
        if adapt_alpha:
            strength = alpha * client.server["mean_samples"] / jnp.maximum(client.num_samples, 1)
        drift = optax.tree.sub(context.params, client.params)
        # <w - x, h> has the same gradient as <w, h> and is 0 at the start.
        return strength * (
            0.5 * optax.tree.vdot(drift, drift) + optax.tree.vdot(drift, client.state["h"])
        )

    def make_upload(client, result):
        moved = optax.tree.sub(result.params, client.params)
        kept = {"h": optax.tree.add(client.state["h"], moved)}
        if evaluate != "all":
            return Upload(kept)
        change = optax.tree.sub(result.params, client.state["latest"])
        return Upload({**kept, "latest": result.params}, summed=change)

    def server(rnd):
        taking_part = jnp.sum(rnd.weights > 0) / rnd.info.num_clients
        h = optax.tree.add_scale(rnd.state["h"], taking_part, rnd.mean_delta)
        cohort = optax.tree.add(rnd.params, rnd.mean_delta)
        state = {**rnd.state, "h": h}
        if evaluate == "cohort":
            state["reported"] = cohort
        if evaluate == "all":
            share = 1.0 / rnd.info.num_clients
            state["reported"] = optax.tree.add_scale(rnd.state["reported"], share, rnd.summed)
        return ServerResult(optax.tree.add(cohort, h), rnd.mean_stats, state)

    return Method(
        "feddyn",
        init=init,
        regularizer=Partial(regularizer, alpha),
        make_upload=make_upload,
        weight=uniform,
        server=server,
        eval_model=None if evaluate == "server" else _reported,
    )


def _reported(evaluation):
    return evaluation.state["reported"], evaluation.stats
