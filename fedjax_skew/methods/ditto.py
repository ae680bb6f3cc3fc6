"""Ditto. Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021.

A client trains two models on the same batches: FedAvg's model, and a personal model ``v`` on the
objective plus ``lam / 2 |v - x|^2``, where ``x`` is the global model at the start of the round. The
two trainings do not interact. ``v`` is trained with the run's SGD, including momentum and weight
decay (the authors use neither), but without clipping, and has its own running statistics. Clients
have equal weights, as in the authors' code. The authors' selection of ``lam`` per client on
held-out data is not implemented.
"""

import jax
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method, MethodState, StepResult, Upload, uniform


@validated("hparams.ditto")
def ditto(*, lam: NonNegative = 1.0) -> Method:
    """Trains, in addition to FedAvg, personal models that stay close to the global model.

    Args:
        lam: weight of the distance to the global model; 0 trains purely local models.
    """

    def scratch(client):
        return {**client.state, "momentum": optax.tree.zeros_like(client.params)}

    def step(lam, s):
        client, own = s.client, s.scratch
        gradient, aux = s.grad(s.params, s.batches[0])
        params, opt_state = s.descend(s.params, gradient, s.opt_state)
        gradient, own_aux = s.grad(own["params"], s.batches[0], own["stats"])
        decay = client.info.weight_decay
        gradient = jax.tree.map(
            lambda g, v, x: g + decay * v + lam * (v - x), gradient, own["params"], client.params
        )
        momentum = optax.tree.add_scale(gradient, client.info.momentum, own["momentum"])
        new = {
            "params": optax.tree.add_scale(own["params"], -client.lr, momentum),
            "stats": own_aux.stats,
            "momentum": momentum,
        }
        return StepResult(params, opt_state, new, aux)

    def make_upload(client, result):
        return Upload({"params": result.scratch["params"], "stats": result.scratch["stats"]})

    return Method(
        "ditto",
        init=lambda context: MethodState(None, {"params": context.params, "stats": context.stats}),
        scratch=scratch,
        step=Partial(step, lam),
        make_upload=make_upload,
        weight=uniform,
        personal=lambda client: (client.state["params"], client.state["stats"]),
    )
