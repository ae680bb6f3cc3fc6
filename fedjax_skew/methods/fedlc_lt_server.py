"""The server of FedLC-LT, which trains on labelled auxiliary data (equations 5 to 8)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_skew.losses import (
    class_query,
    cross_entropy,
    ensemble_logits,
    normalized_distillation,
)
from fedjax_skew.methods.base import PyTree, Round, ServerResult
from fedjax_skew.methods.server_training import (
    averaged,
    client_outputs,
    draw,
    lookup,
    minimize,
    taking_part,
)


def distill(
    rnd: Round,
    *,
    steps: int,
    lam: float,
    batch_size: int,
    server_lr: float,
    calibration_lr: float,
    l_global: bool,
    query: bool,
) -> ServerResult:
    """Returns the averaged model after calibration and distillation on the server's data.

    Args:
        rnd: the round; with ``l_global``, its state has ``r [K, C]``, and with ``query``, it has
            ``a`` and ``b [C]``.
        steps: J, the number of steps of each stage.
        lam: weight of the squared norm of a client's parameters in the ensemble.
        batch_size: samples per step.
        server_lr: learning rate of the model.
        calibration_lr: learning rate of r, a and b.
        l_global: whether to distil the ensemble.
        query: whether to learn a and b, which do not change the returned model.
    """
    (x, labels), (params, stats) = rnd.labelled, averaged(rnd)
    number = x.shape[0]
    key_calibrate, key_distill = jax.random.split(rnd.key)
    learnt = {"r": rnd.state["r"][rnd.ids]} if l_global else {}
    if query:
        learnt |= {name: rnd.state[name] for name in ("a", "b")}
    samples = rnd.num_samples * taking_part(rnd)
    shares = samples / jnp.maximum(jnp.sum(samples), 1e-12)
    lengths = jax.vmap(optax.tree.norm)(rnd.client_params) if l_global else None

    def all_logits(batch):
        own = rnd.model.apply(params, stats, batch)[0].logits
        if not l_global:
            return own, None
        return own, jnp.swapaxes(client_outputs(rnd, batch).logits, 0, 1)

    known = lookup(all_logits, x, steps * batch_size)

    def ensemble(learnt, clients):
        clients = jnp.swapaxes(clients, 0, 1)
        return ensemble_logits(clients, shares, learnt["r"], lengths, lam=lam)

    def calibrate(learnt, _, key):
        ids = draw(key, batch_size, number)
        student, clients = known(ids)
        if query:
            student = class_query(student, learnt["a"], learnt["b"])
        loss = cross_entropy(student, labels[ids])
        if l_global:
            teacher = ensemble(learnt, clients)
            loss += cross_entropy(teacher, labels[ids])
            loss += normalized_distillation(student, teacher)
        return jnp.mean(loss), None

    learnt = minimize(
        calibrate, optax.sgd(calibration_lr), learnt, None, key_calibrate, steps=steps
    ).params

    state = {**rnd.state, **{name: learnt[name] for name in ("a", "b") if query}}
    if not l_global:
        return ServerResult(params, stats, state)

    def towards_ensemble(params, stats, key):
        ids = draw(key, batch_size, number)
        outputs, stats = rnd.model.apply(params, stats, x[ids], train=True)
        teacher = jax.lax.stop_gradient(ensemble(learnt, known(ids)[1]))
        return jnp.mean(normalized_distillation(outputs.logits, teacher)), stats

    done = minimize(towards_ensemble, optax.sgd(server_lr), params, stats, key_distill, steps=steps)
    state |= {"r": rnd.state["r"].at[rnd.ids].set(learnt["r"])}
    return ServerResult(done.params, done.stats, state)


def queried_head(classifier: PyTree, a: jax.Array, b: jax.Array) -> PyTree:
    """Returns a head whose logits are ``class_query`` of the logits of ``classifier``."""
    return {"kernel": classifier["kernel"] * a, "bias": classifier.get("bias", 0.0) * a + b}
