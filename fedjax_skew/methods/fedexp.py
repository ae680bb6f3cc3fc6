"""FedExP. Jhunjhunwala et al., FedExP: Speeding Up Federated Averaging via Extrapolation, ICLR
2023.

The server goes ``max(1, sum p_i |d_i|^2 / (2 (|sum p_i d_i|^2 + eps)))`` times the mean update.
Norms and extrapolation cover parameters only: running statistics would swamp the ratio, and a
variance must not be extrapolated. The evaluated model is the average of the last two iterates, as
in the paper; training continues from the last one. The iterates swing about their average, so the
last one alone, which some comparisons evaluate (``average=False``), looks worse.

The paper weights clients equally and keeps ``eps``; the published code weights them by samples
(the default here, as for the methods it is compared with), and multiplies ``eps`` by the number
of participants and by 0.998 squared every round (``form="code"``).
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method, MethodState, ServerResult, Upload, uniform


@validated("hparams.fedexp")
def fedexp(
    *,
    eps: NonNegative = 1e-3,
    average: bool = True,
    uniform_weights: bool = False,
    form: Literal["paper", "code"] = "paper",
) -> Method:
    """The server extrapolates the mean update when clients disagree.

    Args:
        eps: added to the squared norm of the mean update.
        average: evaluate the average of the last two iterates, not the last one.
        uniform_weights: weight clients equally instead of by their number of samples.
        form: keep ``eps``, or scale it by the number of participants and let it decay, as the
            published code does.
    """

    def make_upload(client, result):
        delta = optax.tree.sub(result.params, result.start)
        return Upload(None, optax.tree.vdot(delta, delta))

    def server(rnd):
        floor = eps
        if form == "code":
            floor = eps * jnp.sum(rnd.weights > 0) * 0.998 ** (2.0 * rnd.round)
        square = jnp.sum(rnd.weights * rnd.stacked)
        mean_square = optax.tree.vdot(rnd.mean_delta, rnd.mean_delta) + floor
        step = jnp.maximum(1.0, square / jnp.maximum(2 * mean_square, 1e-30))
        params = optax.tree.add_scale(rnd.params, step, rnd.mean_delta)
        return ServerResult(params, rnd.mean_stats, rnd.params)

    def eval_model(evaluation):
        mean = jax.tree.map(lambda a, b: 0.5 * (a + b), evaluation.params, evaluation.state)
        return mean, evaluation.stats

    return Method(
        "fedexp",
        init=lambda context: MethodState(context.params),
        make_upload=make_upload,
        weight=uniform if uniform_weights else None,
        server=server,
        eval_model=eval_model if average else None,
    )
