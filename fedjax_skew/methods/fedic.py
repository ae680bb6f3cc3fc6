"""FEDIC. Shang et al., FEDIC: Federated Learning on Non-IID and Long-Tailed Data via Calibrated
Distillation, ICME 2022.

The server holds a small balanced labelled dataset and an unlabelled one. In each round, it
fine-tunes a copy of the average on the labelled data, trains a calibration of the client ensemble
on the same data, combines the two by a gate, and distils the result into the average. As in the
published code, the calibration and the states of all three Adam optimisers persist, although the
copy and the student start from a new average in every round; the student runs in training mode on
both datasets; and the divergence is not multiplied by the squared temperature. The mean feature is
taken over the clients that took part; the published code fixes their number to 8.
"""

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew.checks import Fraction, NonNegative, NumSteps, Positive, PositiveInt, validated
from fedjax_skew.losses import cross_entropy, distillation
from fedjax_skew.methods.base import Method, MethodState, PyTree, Round, ServerResult
from fedjax_skew.methods.server_training import (
    adam,
    averaged,
    client_outputs,
    draw,
    equal_weights,
    lookup,
    minimize,
    taking_part,
    unless_empty,
)


@validated("hparams.fedic")
def fedic(
    *,
    finetune_steps: NumSteps = 100,
    calibrate_steps: NumSteps = 100,
    distill_steps: NumSteps = 100,
    server_lr: Positive = 1e-3,
    weight_decay: NonNegative = 2e-4,
    labelled_batch_size: PositiveInt = 20,
    unlabelled_batch_size: PositiveInt = 128,
    temperature: Positive = 2.0,
    mix: Fraction = 0.5,
) -> Method:
    """Calibrates the client ensemble on labelled server data and distils it.

    Args:
        finetune_steps: steps of the fine-tuned copy per round.
        calibrate_steps: steps of the calibration per round.
        distill_steps: steps of the student per round.
        server_lr: learning rate of all three Adam optimisers.
        weight_decay: weight decay of the copy and of the student.
        labelled_batch_size: labelled samples per step.
        unlabelled_batch_size: unlabelled samples per step.
        temperature: temperature of both softmaxes in the divergence.
        mix: weight of the divergence; the cross-entropy on labelled data has weight ``1 - mix``.
    """

    def init(context):
        decayed, plain = adam(server_lr, weight_decay or None), adam(server_lr)
        net = new_calibration(context.key, *context.params["head"]["kernel"].shape)
        return MethodState(
            {
                "calibration": net,
                "calibration_opt": plain.init(net),
                "copy_opt": decayed.init(context.params),
                "student_opt": decayed.init(context.params),
            }
        )

    def server(server_lr, weight_decay, temperature, mix, rnd: Round) -> ServerResult:
        decayed, plain = adam(server_lr, weight_decay), adam(server_lr)
        (x, labels), new_x, state = rnd.labelled, rnd.unlabelled, rnd.state
        keys = jax.random.split(rnd.key, 3)
        params, stats = averaged(rnd)

        def supervised(params, stats, ids):
            outputs, stats = rnd.model.apply(params, stats, x[ids], train=True)
            return jnp.mean(cross_entropy(outputs.logits, labels[ids])), stats

        def on_labelled(params, stats, key):
            return supervised(params, stats, draw(key, labelled_batch_size, x.shape[0]))

        copy = minimize(
            on_labelled,
            decayed,
            params,
            stats,
            keys[0],
            steps=finetune_steps,
            opt_state=state["copy_opt"],
        )

        def ensemble(batch):
            clients = client_outputs(rnd, batch)
            tuned = rnd.model.apply(copy.params, copy.stats, batch)[0].logits
            features = jnp.tensordot(equal_weights(rnd), clients.features, 1)
            return jnp.swapaxes(clients.logits, 0, 1), features, tuned

        known = lookup(ensemble, x, calibrate_steps * labelled_batch_size)
        part = taking_part(rnd)

        def calibrate(net, stats, key):
            ids = draw(key, labelled_batch_size, x.shape[0])
            logits = calibrated(net, *known(ids), part)
            return jnp.mean(cross_entropy(logits, labels[ids])), stats

        net = minimize(
            calibrate,
            plain,
            state["calibration"],
            None,
            keys[1],
            steps=calibrate_steps,
            opt_state=state["calibration_opt"],
        )

        def taught(batch):
            logits, features, tuned = ensemble(batch)
            return calibrated(net.params, logits, features, tuned, part)

        teacher = lookup(
            taught,
            new_x,
            distill_steps * unlabelled_batch_size,
        )

        def distill(params, stats, key):
            key_new, key_known = jax.random.split(key)
            ids = draw(key_new, unlabelled_batch_size, new_x.shape[0])
            outputs, stats = rnd.model.apply(params, stats, new_x[ids], train=True)
            apart = jnp.mean(distillation(outputs.logits, teacher(ids), temperature=temperature))
            ids = draw(key_known, labelled_batch_size, x.shape[0])
            wrong, stats = supervised(params, stats, ids)
            return mix * apart + (1 - mix) * wrong, stats

        student = minimize(
            distill,
            decayed,
            params,
            stats,
            keys[2],
            steps=distill_steps,
            opt_state=state["student_opt"],
        )
        new = {
            "calibration": net.params,
            "calibration_opt": net.opt_state,
            "copy_opt": copy.opt_state,
            "student_opt": student.opt_state,
        }
        return unless_empty(rnd, ServerResult(student.params, student.stats, new))

    return Method(
        "fedic",
        init=init,
        server=Partial(server, server_lr, weight_decay or None, temperature, mix),
        needs_client_models=True,
        needs_labelled_data=True,
        needs_unlabelled_data=True,
    )


def new_calibration(key: jax.Array, num_features: int, num_classes: int) -> PyTree:
    """Returns an initial calibration with equal scales and a random gate."""
    bound = num_features**-0.5
    return {
        "u": jnp.ones(num_classes),
        "u_bias": jnp.float32(0),
        "scale": jnp.ones(num_classes),
        "bias": jnp.zeros(num_classes),
        "gate": jax.random.uniform(key, (num_features,), minval=-bound, maxval=bound),
        "gate_bias": jnp.float32(0),
    }


def calibrated(
    net: PyTree, client_logits: jax.Array, features: jax.Array, tuned: jax.Array, part: jax.Array
) -> jax.Array:
    """Returns the teacher's logits ``[B, C]``.

    Args:
        net: the calibration.
        client_logits: ``[B, M, C]``.
        features: the clients' mean features ``[B, D]``.
        tuned: the fine-tuned copy's logits ``[B, C]``.
        part: ``[M]``, 1 for clients that take part.
    """
    weight = jax.nn.sigmoid(client_logits @ net["u"] + net["u_bias"]) * part
    weight = weight / jnp.maximum(jnp.sum(weight, -1, keepdims=True), 1e-12)
    mean = jnp.sum(weight[..., None] * client_logits, -2)
    gate = jax.nn.sigmoid(features @ net["gate"] + net["gate_bias"])[..., None]
    return gate * (mean * net["scale"] + net["bias"]) + (1 - gate) * tuned
