"""FedAvgM, FedAdagrad, FedAdam and FedYogi: a server optimiser applied to the mean update.

FedAvgM: Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification, 2019. The others: Reddi et al., Adaptive Federated Optimization, ICLR 2021.

The adaptive rules follow the paper's Algorithm 2: there is no bias correction, unlike in the Keras
optimisers of the released code, and ``v`` starts at ``tau^2``. The mean update is weighted by
samples, as in the released code; for the unweighted mean of the paper, compose with FedAvg, for
example ``fedavg+fedadam`` with ``hparams.fedavg.uniform_weights=True``. Running statistics are
averaged and do not pass through the optimiser.

The best ``server_lr`` and ``tau`` depend on the problem; the released tuning ranges over 0.003..1
and 1e-4..0.1, mostly with ``server_lr`` near ``10 tau``, which is the default here. On 12,000
samples of MNIST (10 clients, Dirichlet 0.05, an MLP, 10 rounds of 2 epochs at a learning rate of
0.05, one seed), FedAdam reached 76 % with a ``server_lr`` of 0.01 and 69 % with 0.1, and FedAdagrad
75 % and 54 %.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import BelowOne, Fraction, Positive, validated
from fedjax_skew.methods.base import Method, MethodState, ServerResult


@validated("hparams.fedavgm")
def fedavgm(
    *,
    server_lr: Positive = 1.0,
    beta: BelowOne = 0.9,
    variant: Literal["undamped", "damped", "nesterov"] = "undamped",
) -> Method:
    """Applies momentum to the mean update on the server.

    Args:
        server_lr: learning rate of the server.
        beta: momentum.
        variant: ``"undamped"`` for ``v <- beta v + d``; ``"damped"`` for
            ``v <- beta v + (1 - beta) d``, as in some benchmarks; ``"nesterov"`` for Nesterov
            momentum.
    """

    def server(server_lr, beta, rnd):
        share = 1 - beta if variant == "damped" else 1.0
        v = jax.tree.map(lambda v, d: beta * v + share * d, rnd.state, rnd.mean_delta)
        step = optax.tree.add_scale(rnd.mean_delta, beta, v) if variant == "nesterov" else v
        return ServerResult(optax.tree.add_scale(rnd.params, server_lr, step), rnd.mean_stats, v)

    return Method(
        "fedavgm",
        init=lambda context: MethodState(optax.tree.zeros_like(context.params)),
        server=Partial(server, server_lr, beta),
    )


@validated("hparams.fedadagrad")
def fedadagrad(
    *, server_lr: Positive = 0.01, beta1: BelowOne = 0.0, tau: Positive = 1e-3
) -> Method:
    """Applies Adagrad to the mean update on the server.

    Args:
        server_lr: learning rate of the server.
        beta1: decay of the first moment; 0 in the paper.
        tau: constant added to the root of the second moment, which starts at ``tau^2``.
    """
    return _adaptive("fedadagrad", Partial(lambda v, d: v + d * d), server_lr, beta1, tau)


@validated("hparams.fedadam")
def fedadam(
    *,
    server_lr: Positive = 0.01,
    beta1: BelowOne = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
) -> Method:
    """Applies Adam to the mean update on the server.

    Args:
        server_lr: learning rate of the server.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        tau: constant added to the root of the second moment, which starts at ``tau^2``.
    """
    return _adam("fedadam", server_lr, beta1, beta2, tau)


@validated("hparams.fedopt")
def fedopt(
    *,
    server_lr: Positive = 0.01,
    beta1: BelowOne = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
) -> Method:
    """Applies Adam to the mean update; this is FedAdam under the name that some tables use.

    Args:
        server_lr: learning rate of the server.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        tau: constant added to the root of the second moment, which starts at ``tau^2``.
    """
    return _adam("fedopt", server_lr, beta1, beta2, tau)


@validated("hparams.fedyogi")
def fedyogi(
    *,
    server_lr: Positive = 0.01,
    beta1: BelowOne = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
) -> Method:
    """Applies Yogi to the mean update on the server.

    Args:
        server_lr: learning rate of the server.
        beta1: decay of the first moment.
        beta2: bounds the rate at which the second moment changes.
        tau: constant added to the root of the second moment, which starts at ``tau^2``.
    """

    def second(beta2, v, d):
        return v - (1 - beta2) * d * d * jnp.sign(v - d * d)

    return _adaptive("fedyogi", Partial(second, beta2), server_lr, beta1, tau)


def _adam(name: str, server_lr: float, beta1: float, beta2: float, tau: float) -> Method:

    def second(beta2, v, d):
        return beta2 * v + (1 - beta2) * d * d

    return _adaptive(name, Partial(second, beta2), server_lr, beta1, tau)


def _adaptive(name: str, second: Partial, server_lr: float, beta1: float, tau: float) -> Method:
    """Returns the method ``x + server_lr m / (sqrt(v) + tau)``; ``second(v, d)`` updates ``v``."""

    def init(context):
        v = jax.tree.map(lambda p: jnp.full_like(p, tau**2), context.params)
        return MethodState({"m": optax.tree.zeros_like(context.params) if beta1 else None, "v": v})

    def server(second, server_lr, beta1, tau, rnd):
        m, v = rnd.mean_delta, jax.tree.map(second, rnd.state["v"], rnd.mean_delta)
        if beta1 is not None:
            m = jax.tree.map(lambda m, d: beta1 * m + (1 - beta1) * d, rnd.state["m"], m)
        params = jax.tree.map(
            lambda x, m, v: x + server_lr * m / (jnp.sqrt(v) + tau), rnd.params, m, v
        )
        return ServerResult(params, rnd.mean_stats, {"m": None if beta1 is None else m, "v": v})

    return Method(name, init=init, server=Partial(server, second, server_lr, beta1 or None, tau))
