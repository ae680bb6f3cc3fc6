"""SCAFFOLD, option II. Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning, ICML 2020.

A client descends along ``g - c_i + c`` and then sets ``c_i <- c_i - c + (x - y) / (K_rho lr)``,
where ``lr`` is the learning rate of the round and ``K_rho`` the effective number of steps under
local momentum, which is ``K`` without momentum. The paper does not use momentum. With momentum and
the correction inside the gradient, as here, dividing by ``K lr`` would overestimate the gradient by
a factor of up to ``1 / (1 - rho)``, and the variates would oscillate with growing amplitude. All
variates start at zero and apply only to parameters; running statistics are averaged. The server's
variate is the mean over all clients, including those that did not participate.

The model is the unweighted mean of the cohort's models, as in the paper; several benchmarks weight
it by samples.
"""

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import Positive, validated
from fedjax_skew.methods.base import Method, MethodState, ServerResult, Upload, uniform
from fedjax_skew.methods.momentum import effective_steps, require_fresh_momentum


@validated("hparams.scaffold")
def scaffold(*, server_lr: Positive = 1.0, uniform_weights: bool = True) -> Method:
    """Corrects the drift of local gradients with control variates.

    Args:
        server_lr: server learning rate on the mean update. At 1, the server rule is plain averaging
            and can be replaced by that of another method in a composition.
        uniform_weights: whether to weight clients equally instead of by their number of samples.
    """

    def init(context):
        require_fresh_momentum("scaffold", context.info)
        zero = optax.tree.zeros_like(context.params)
        return MethodState(zero, zero)

    def correct_gradient(gradient, params, client):
        return jax.tree.map(lambda g, own, c: g - own + c, gradient, client.state, client.server)

    def make_upload(client, result):
        length = client.lr * effective_steps(client.num_steps, client.info.momentum)
        length = jnp.maximum(length, 1e-12)
        variate = jax.tree.map(
            lambda own, c, x, y: own - c + (x - y) / length,
            client.state,
            client.server,
            result.start,
            result.params,
        )
        return Upload(variate, None, optax.tree.sub(variate, client.state))

    def update_server_state(rnd):
        return optax.tree.add_scale(rnd.state, 1 / rnd.info.num_clients, rnd.summed)

    def server(server_lr, rnd):
        params = optax.tree.add_scale(rnd.params, server_lr, rnd.mean_delta)
        return ServerResult(params, rnd.mean_stats, rnd.state)

    return Method(
        "scaffold",
        init=init,
        correct_gradient=correct_gradient,
        make_upload=make_upload,
        weight=uniform if uniform_weights else None,
        update_server_state=update_server_state,
        server=None if server_lr == 1 else Partial(server, server_lr),
    )
