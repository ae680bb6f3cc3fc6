"""FedDyn. Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021.

A client minimises ``CE + a/2 ||w - x||^2 + a <w, h>`` where ``h`` sums its past updates ``y -
x``; at the minimum ``-a h`` is its own gradient, so the penalties of all clients cancel at the
optimum. The server adds the mean of all clients' ``h`` to the mean of the cohort's models. As in
the published code both means are plain, and ``a = alpha / (n / mean n)``, which makes the optimum
that of the sample-weighted objective; ``adapt_alpha=False`` is the paper's single ``alpha`` for
all.

Local momentum breaks the first-order condition behind ``h``; use it with ``momentum=0``.
"""

import jax.numpy as jnp

from fedjax_skew import trees
from fedjax_skew.methods import checks
from fedjax_skew.methods.base import Method, ServerResult, State, Upload, uniform


def feddyn(*, alpha: float = 0.01, evaluate: str = "cohort", adapt_alpha: bool = True) -> Method:
    """Dynamic regularisation: clients correct for their own past gradients.

    Args:
        alpha: strength of the regularisation.
        evaluate: the model that is reported: ``"cohort"``, the mean of the round's local models;
            ``"all"``, the mean of every client's latest model (the published plots; each client
            then keeps it); or ``"server"``, the model that training continues from.
        adapt_alpha: divide ``alpha`` by the client's share of samples times the number of clients.
    """
    checks.positive("feddyn", "alpha", alpha)
    checks.choice("feddyn", "evaluate", evaluate, ("cohort", "all", "server"))
    checks.flag("feddyn", "adapt_alpha", adapt_alpha)

    def init(setup):
        h = trees.zeros(setup.params)
        mean_samples = jnp.float32(setup.class_counts.sum() / setup.facts.num_clients)
        server = {"h": h, "mean_samples": mean_samples}
        kept = {"h": h}
        if evaluate != "server":
            server["reported"] = setup.params
        if evaluate == "all":
            kept["latest"] = setup.params
        return State(server, kept)

    def term(view):
        client = view.client
        strength = jnp.float32(alpha)
        if adapt_alpha:
            strength = alpha * client.server["mean_samples"] / jnp.maximum(client.num_samples, 1)
        drift = trees.subtract(view.params, client.params)
        # <w - x, h> in place of <w, h>: the same gradient, and 0 at the start.
        return strength * (0.5 * trees.dot(drift, drift) + trees.dot(drift, client.kept["h"]))

    def finish(client, result):
        moved = trees.subtract(result.params, client.params)
        kept = {"h": trees.add(client.kept["h"], moved)}
        if evaluate != "all":
            return Upload(kept)
        change = trees.subtract(result.params, client.kept["latest"])
        return Upload({**kept, "latest": result.params}, summed=change)

    def server(rnd):
        taking_part = jnp.sum(rnd.weights > 0) / rnd.facts.num_clients
        h = trees.add_scaled(rnd.state["h"], taking_part, rnd.mean_delta)
        cohort = trees.add(rnd.params, rnd.mean_delta)
        state = {**rnd.state, "h": h}
        if evaluate == "cohort":
            state["reported"] = cohort
        if evaluate == "all":
            share = 1.0 / rnd.facts.num_clients
            state["reported"] = trees.add_scaled(rnd.state["reported"], share, rnd.summed)
        return ServerResult(trees.add(cohort, h), rnd.mean_stats, state)

    return Method(
        "feddyn",
        init=init,
        term=term,
        finish=finish,
        weight=uniform,
        server=server,
        evaluated=None if evaluate == "server" else _reported,
    )


def _reported(evaluation):
    return evaluation.state["reported"], evaluation.stats
