"""FedGF. Lee and Yoon, Rethinking the Flat Minima Searching in Federated Learning, ICML 2024.

A step takes its gradient at ``c x_pert + (1 - c) (w + rho g / |g|)``, which lies between the
client's own point of sharpness-aware minimisation and the global one, ``x_pert``. The server
computes ``x_pert`` by moving a distance of ``server_rho`` against its last update. ``c`` is the
share of the last ``window`` rounds in which the mean distance between the clients' models and the
global model exceeded ``threshold``. Before the first update there is no ``x_pert``, and the step is
that of FedSAM. Only the first pass updates running statistics.

``threshold`` has no published default, because it depends on the model and the learning rate. The
median of that distance under FedSAM (``update_norm`` in the metrics) is a good initial choice.

``x_pert`` is constant while the client trains. On a quadratic, a client that trains to convergence
moves ``1 / (1 - c)`` times the distance to its optimum, so that training diverges if ``c`` exceeds
0.5; every round then counts as divergent, and ``c`` remains at 1. The published runs have one short
epoch per round. To support longer local training, ``c`` is therefore limited to ``max_share``; a
value of 1 gives the published rule.
"""

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import Fraction, NonNegative, PositiveInt, validated
from fedjax_skew.methods.base import Method, MethodState, StepResult, Upload, average
from fedjax_skew.methods.fedsam import perturbation


@validated("hparams.fedgf")
def fedgf(
    *,
    rho: NonNegative = 0.05,
    server_rho: NonNegative = 0.05,
    threshold: NonNegative = 0.3,
    window: PositiveInt = 30,
    max_share: Fraction = 0.3,
) -> Method:
    """Takes sharpness-aware steps that mix local and global perturbations.

    Args:
        rho: length of the local perturbation.
        server_rho: length of the global perturbation.
        threshold: distance above which a round counts as divergent.
        window: number of past rounds that determine the mixture.
        max_share: largest share of the global perturbation in the mixture.
    """

    def init(context):
        return MethodState(
            {
                "perturbed": context.params,
                "divergent": jnp.zeros(window),
                "rounds": jnp.int32(0),
            }
        )

    def step(rho, max_share, s):
        sent = s.client.server
        share = jnp.sum(sent["divergent"]) / jnp.clip(sent["rounds"], 1, window)
        share = jnp.minimum(share, max_share)
        gradient, aux = s.grad(s.params, s.batches[0])
        own = optax.tree.add(s.params, perturbation(gradient, rho))
        point = jax.tree.map(lambda g, w: share * g + (1 - share) * w, sent["perturbed"], own)
        gradient, _ = s.grad(point, s.batches[0])
        params, opt_state = s.descend(s.params, gradient, s.opt_state)
        return StepResult(params, opt_state, s.scratch, aux)

    def make_upload(client, result):
        return Upload(None, optax.tree.norm(optax.tree.sub(result.params, client.params)))

    def server(server_rho, threshold, rnd):
        new = average(rnd)
        used = rnd.weights > 0
        distance = jnp.sum(jnp.where(used, rnd.stacked, 0)) / jnp.maximum(jnp.sum(used), 1)
        back = perturbation(optax.tree.sub(rnd.params, new.params), server_rho)
        rounds = rnd.state["rounds"]
        divergent = (
            rnd.state["divergent"]
            .at[rounds % window]
            .set((distance > threshold).astype(jnp.float32))
        )
        state = {
            "perturbed": optax.tree.add(new.params, back),
            "divergent": divergent,
            "rounds": rounds + 1,
        }
        return new._replace(state=state)

    return Method(
        "fedgf",
        init=init,
        step=Partial(step, rho, max_share),
        make_upload=make_upload,
        server=Partial(server, server_rho, threshold),
    )
