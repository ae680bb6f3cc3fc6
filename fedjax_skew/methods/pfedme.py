"""pFedMe. Dinh et al., Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020.

A step approximately solves ``min_theta f(theta) + lam / 2 |theta - w|^2`` by ``inner_steps``
gradient steps on one batch, starting from the last ``theta``, and then moves ``w`` by ``client_lr
lam (theta - w)``. This is gradient descent on the Moreau envelope, whose gradient tends to that of
``f`` as ``lam`` grows. The published code also applies the weight decay ``mu`` to ``theta``. The
outer step uses the client optimiser, so that ``client_lr`` is the paper's eta, and the run's
momentum and weight decay apply to ``w``. Keep ``client_lr lam`` below 1 (the paper uses 0.005 and
15), or ``w`` overshoots ``theta``.

The server moves the global model towards the mean of the ``w`` by the fraction ``beta``. ``theta``
is the client's personal model, kept from its last participation; the published code trains all
clients in every round for this evaluation. A client that has never participated uses the global
model.
"""

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew import trees
from fedjax_skew.checks import NonNegative, NumSteps, Positive, validated
from fedjax_skew.methods.base import Method, MethodState, ServerResult, StepResult, Upload


@validated("hparams.pfedme")
def pfedme(
    *,
    lam: Positive = 15.0,
    inner_lr: Positive = 0.09,
    inner_steps: NumSteps = 5,
    mu: NonNegative = 0.001,
    beta: Positive = 1.0,
) -> Method:
    """Trains personal models that a Moreau envelope keeps close to the global model.

    Args:
        lam: weight of the distance between a client's personal model and ``w``.
        inner_lr: learning rate of the personal model.
        inner_steps: steps of the personal model per batch.
        mu: weight decay of the personal model.
        beta: learning rate of the server. At 1, the server rule is plain averaging and can be
            replaced by that of another method in a composition.
    """
    if inner_lr * (lam + mu) >= 2:
        raise ValueError(
            f"hparams.pfedme.inner_lr={inner_lr} diverges with lam={lam}; it must be below "
            f"2 / (lam + mu) = {2 / (lam + mu):.3g}."
        )

    def step(lam, inner_lr, mu, s):
        def descend(_, carry):
            theta, _ = carry
            gradient, aux = s.grad(theta, s.batches[0])
            theta = jax.tree.map(
                lambda t, g, w: t - inner_lr * (g + lam * (t - w) + mu * t),
                theta,
                gradient,
                s.params,
            )
            return theta, aux

        shape = jax.eval_shape(s.grad, s.params, s.batches[0])[1]
        aux = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shape)
        theta, aux = jax.lax.fori_loop(0, inner_steps, descend, (s.scratch, aux))
        away = optax.tree.scale(lam, optax.tree.sub(s.params, theta))
        params, opt_state = s.descend(s.params, away, s.opt_state)
        return StepResult(params, opt_state, theta, aux)

    def make_upload(client, result):
        return Upload({"theta": result.scratch, "stats": result.stats, "trained": jnp.bool_(True)})

    def server(beta, rnd):
        params = optax.tree.add_scale(rnd.params, beta, rnd.mean_delta)
        return ServerResult(params, rnd.mean_stats, rnd.state)

    def personal(client):
        own = client.state["theta"], client.state["stats"]
        return trees.select(client.state["trained"], own, (client.params, client.stats))

    return Method(
        "pfedme",
        init=lambda context: MethodState(
            None, {"theta": context.params, "stats": context.stats, "trained": jnp.bool_(False)}
        ),
        scratch=lambda client: client.params,
        step=Partial(step, lam, inner_lr, mu),
        make_upload=make_upload,
        server=None if beta == 1 else Partial(server, beta),
        personal=personal,
    )
