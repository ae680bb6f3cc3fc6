"""FedSpeed. Sun et al., FedSpeed: Larger Local Interval, Less Communication Round, and Higher
Generalization Accuracy, ICLR 2023.

A step takes the gradient ``g1`` at ``w`` and the gradient ``g2`` on the same batch at
``w + rho g1 / |g1|``, and descends along ``(1 - alpha) g1 + alpha g2 + lamb (w - x + h)``, where
``h`` is the sum of the client's past updates. The ascent uses only the gradient of the objective.
Only the first pass updates running statistics.

The two forms differ in what the server adds to the unweighted mean of the local models: in the
authors' code, which is the default, it is the mean of all clients' ``h``, as in FedDyn; in the
paper, it is the mean over the cohort. They agree under full participation. The code also uses
``alpha = 1``. Use the method with ``momentum=0``, for the same reason as FedDyn.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import Fraction, NonNegative, validated
from fedjax_skew.methods.base import (
    Method,
    MethodState,
    ServerResult,
    StepResult,
    Upload,
    uniform,
)
from fedjax_skew.methods.fedsam import perturbation


@validated("hparams.fedspeed")
def fedspeed(
    *,
    rho: NonNegative = 0.1,
    lamb: NonNegative = 0.1,
    alpha: Fraction = 1.0,
    form: Literal["paper", "code"] = "code",
) -> Method:
    """Combines a proximal correction by past updates with gradients at a perturbed point.

    Args:
        rho: length of the perturbation.
        lamb: strength of the proximal term and of the correction.
        alpha: share of the gradient at the perturbed point.
        form: whether the server adds the mean correction of all clients (``"code"``) or of the
            cohort (``"paper"``).
    """

    def step(rho, alpha, s):
        first, aux = s.grad(s.params, s.batches[0])
        second, _ = s.grad(optax.tree.add(s.params, perturbation(first, rho)), s.batches[0])
        gradient = jax.tree.map(lambda a, b: (1 - alpha) * a + alpha * b, first, second)
        params, opt_state = s.descend(s.params, gradient, s.opt_state)
        return StepResult(params, opt_state, s.scratch, aux)

    def correct_gradient(lamb, gradient, params, client):
        return jax.tree.map(
            lambda g, w, x, h: g + lamb * (w - x + h),
            gradient,
            params,
            client.params,
            client.state,
        )

    def make_upload(client, result):
        h = optax.tree.add(client.state, optax.tree.sub(result.params, client.params))
        return Upload(h, None, h if form == "paper" else None)

    def server(rnd):
        number = jnp.sum(rnd.weights > 0)
        mean = optax.tree.add(rnd.params, rnd.mean_delta)
        if form == "paper":
            state = None
            correction = optax.tree.scale(1 / jnp.maximum(number, 1), rnd.summed)
        else:
            share = number / rnd.info.num_clients
            correction = state = optax.tree.add_scale(rnd.state, share, rnd.mean_delta)
        return ServerResult(optax.tree.add(mean, correction), rnd.mean_stats, state)

    def init(context):
        h = optax.tree.zeros_like(context.params)
        return MethodState(h if form == "code" else None, h)

    return Method(
        "fedspeed",
        init=init,
        step=Partial(step, rho, alpha),
        correct_gradient=Partial(correct_gradient, lamb),
        make_upload=make_upload,
        weight=uniform,
        server=server,
    )
