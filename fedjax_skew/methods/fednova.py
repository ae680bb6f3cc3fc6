"""FedNova. Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization, NeurIPS 2020.

Client i's update is divided by ``a_i``, the effective length of its local training, and the
weighted mean of these directions is multiplied by ``tau = sum p_i a_i``. For SGD, ``a_i`` is the
number of steps; with momentum, it is the closed form of ``effective_steps``. With a proximal term,
it is ``sum_k (1 - lr mu)^k``, and ``tau`` is ``sum p_i K_i``, as in the published code. That code
combines momentum and the proximal term in a way that counts steps twice, so the combination is
rejected. The correction applies only to parameters; running statistics are averaged. If all clients
take the same number of steps, the method is FedAvg.
"""

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import BelowOne, NonNegative, validated
from fedjax_skew.methods.base import Client, Method, MethodState, ServerResult, Upload, uniform
from fedjax_skew.methods.momentum import effective_steps, require_fresh_momentum


@validated("hparams.fednova")
def fednova(
    *, global_momentum: BelowOne = 0.0, mu: NonNegative = 0.0, uniform_weights: bool = False
) -> Method:
    """Normalises updates by the number of local steps.

    Args:
        global_momentum: momentum of the server; 0 disables it.
        mu: strength of a proximal term; 0 disables it.
        uniform_weights: whether to weight clients equally instead of by their number of samples.
    """
    weight = uniform if uniform_weights else _samples

    def init(context):
        require_fresh_momentum("fednova", context.info)
        if mu and context.info.momentum:
            raise ValueError(
                f"hparams.fednova.mu={mu} is incompatible with "
                f"momentum={context.info.momentum}; one of the two must be 0."
            )
        return MethodState(optax.tree.zeros_like(context.params) if global_momentum else None)

    def length(mu: float | None, client: Client) -> jax.Array:
        if mu is None:
            return effective_steps(client.num_steps, client.info.momentum)
        shrink = client.lr * mu
        return (1 - (1 - shrink) ** client.num_steps) / shrink

    def regularizer(mu, context):
        away = optax.tree.sub(context.params, context.client.params)
        return 0.5 * mu * optax.tree.vdot(away, away)

    def make_upload(mu, client, result):
        a, p = jnp.maximum(length(mu, client), 1e-12), weight(client, result)
        direction = optax.tree.scale(p / a, optax.tree.sub(result.params, result.start))
        return Upload(None, {"length": a, "weight": p}, direction)

    def server(global_momentum, rnd):
        lengths = rnd.num_steps if mu else rnd.stacked["length"]
        tau = jnp.sum(rnd.weights * lengths)
        total = jnp.maximum(jnp.sum(rnd.stacked["weight"]), 1e-12)
        update, state = optax.tree.scale(tau / total, rnd.summed), rnd.state
        if global_momentum is not None:
            lr = jnp.maximum(rnd.lr, 1e-12)
            state = jax.tree.map(lambda b, u: global_momentum * b + u / lr, state, update)
            update = optax.tree.scale(lr, state)
        return ServerResult(optax.tree.add(rnd.params, update), rnd.mean_stats, state)

    return Method(
        "fednova",
        init=init,
        regularizer=Partial(regularizer, mu) if mu else None,
        make_upload=Partial(make_upload, mu or None),
        weight=weight,
        server=Partial(server, global_momentum or None),
    )


def _samples(client, result):
    return client.num_samples
