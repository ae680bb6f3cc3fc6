"""FedACG. Kim, Kim and Han, Communication-Efficient Federated Learning with Accelerated Client
Gradient, CVPR 2024.

The server sends the look-ahead point ``x + lam m`` and keeps ``x``. Clients start from that point,
and their loss includes ``beta |w - x - lam m|^2``, without a factor of one half, as in the authors'
code. The momentum becomes ``m <- lam m + mean (y - x - lam m)``, and the model becomes the plain
mean of the local models, which is ``x + m``. The evaluated model is ``x``, not the look-ahead.
"""

import jax
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import BelowOne, NonNegative, validated
from fedjax_skew.methods.base import Method, MethodState, ServerResult, uniform


@validated("hparams.fedacg")
def fedacg(*, lam: BelowOne = 0.85, beta: NonNegative = 1e-3) -> Method:
    """Starts clients from a look-ahead point given by the server's momentum.

    Args:
        lam: momentum of the server.
        beta: weight of the squared distance to the look-ahead point.
    """

    def init(context):
        return MethodState(
            {"params": context.params, "momentum": optax.tree.zeros_like(context.params)}
        )

    def regularizer(beta, context):
        drift = optax.tree.sub(context.params, context.client.params)
        return beta * optax.tree.vdot(drift, drift)

    def server(lam, rnd):
        momentum = jax.tree.map(lambda m, d: lam * m + d, rnd.state["momentum"], rnd.mean_delta)
        params = optax.tree.add(rnd.params, rnd.mean_delta)
        state = {"params": params, "momentum": momentum}
        return ServerResult(optax.tree.add_scale(params, lam, momentum), rnd.mean_stats, state)

    return Method(
        "fedacg",
        init=init,
        regularizer=Partial(regularizer, beta) if beta else None,
        weight=uniform,
        server=Partial(server, lam),
        eval_model=lambda evaluation: (evaluation.state["params"], evaluation.stats),
    )
