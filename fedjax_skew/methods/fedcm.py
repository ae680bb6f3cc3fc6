"""FedCM. Xu et al., FedCM: Federated Learning with Client-level Momentum, 2021.

A client descends along ``alpha g + (1 - alpha) d``, where ``d`` estimates the global gradient by
the mean direction ``-(y - x) / (K lr)`` of the last round's clients. In the first round ``d`` is 0,
so that the effective learning rate is ``alpha`` times the configured one. Weight decay is added
after mixing. ``K`` and ``lr`` are the number of steps of each client and the learning rate of the
round in which it took them; implementations that use one ``K`` for all clients are biased if
clients have different sizes. The server takes the plain mean.

The authors have not published code. Use the method with ``momentum=0``: local momentum would
account for past gradients twice, although ``d`` is corrected for its length.
"""

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import Fraction, Positive, validated
from fedjax_skew.methods.base import Method, MethodState, ServerResult, Upload, uniform
from fedjax_skew.methods.momentum import effective_steps, require_fresh_momentum


@validated("hparams.fedcm")
def fedcm(*, alpha: Fraction = 0.1, server_lr: Positive = 1.0) -> Method:
    """Mixes local gradients with the mean direction of the last round.

    Args:
        alpha: share of the local gradient; 1 is FedAvg.
        server_lr: server learning rate on the mean update. At 1, the server rule is plain averaging
            and can be replaced by that of another method in a composition.
    """

    def init(context):
        require_fresh_momentum("fedcm", context.info)
        return MethodState(optax.tree.zeros_like(context.params))

    def correct_gradient(alpha, gradient, params, client):
        return jax.tree.map(lambda g, d: alpha * g + (1 - alpha) * d, gradient, client.server)

    def make_upload(client, result):
        length = client.lr * effective_steps(client.num_steps, client.info.momentum)
        direction = optax.tree.sub(result.start, result.params)
        return Upload(summed=optax.tree.scale(1 / jnp.maximum(length, 1e-12), direction))

    def update_server_state(rnd):
        number = jnp.sum(rnd.weights > 0)
        return jax.tree.map(
            lambda new, old: jnp.where(number > 0, new / jnp.maximum(number, 1), old),
            rnd.summed,
            rnd.state,
        )

    def server(server_lr, rnd):
        params = optax.tree.add_scale(rnd.params, server_lr, rnd.mean_delta)
        return ServerResult(params, rnd.mean_stats, rnd.state)

    return Method(
        "fedcm",
        init=init,
        correct_gradient=Partial(correct_gradient, alpha),
        make_upload=make_upload,
        weight=uniform,
        update_server_state=update_server_state,
        server=None if server_lr == 1 else Partial(server, server_lr),
    )
