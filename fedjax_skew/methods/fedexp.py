"""FedExP. Jhunjhunwala et al., FedExP: Speeding Up Federated Averaging via Extrapolation, ICLR
2023.

The server multiplies the mean update by ``max(1, sum p_i |d_i|^2 / (2 (|sum p_i d_i|^2 + eps)))``.
Norms and extrapolation apply only to parameters: running statistics would dominate the ratio, and a
variance must not be extrapolated. The evaluated model is the average of the last two iterates, as
in the paper; training continues from the last one. The iterates oscillate about their average, so
the last one alone, which some comparisons evaluate (``average=False``), performs worse.

The paper weights clients equally and uses a constant ``eps``. The published code weights clients by
their number of samples, which is the default here for comparability with other methods. It also
multiplies ``eps`` by the number of participants, and by 0.998 squared every round
(``form="code"``).
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

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
    """Extrapolates the mean update on the server when clients disagree.

    Args:
        eps: constant added to the squared norm of the mean update.
        average: whether to evaluate the average of the last two iterates instead of the last one.
        uniform_weights: whether to weight clients equally instead of by their number of samples.
        form: ``"paper"`` for a constant ``eps``; ``"code"`` to scale it by the number of
            participants and let it decay.
    """

    def make_upload(client, result):
        delta = optax.tree.sub(result.params, result.start)
        return Upload(None, optax.tree.vdot(delta, delta))

    def server(eps, rnd):
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
        server=Partial(server, eps),
        eval_model=eval_model if average else None,
    )
