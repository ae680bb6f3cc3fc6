"""Training of a second head that stays with its client (FedRoD, FedLoGe)."""

import jax
import jax.numpy as jnp

from fedjax_skew.methods.base import LossContext, PyTree


def head_gradient(context: LossContext, logits: jax.Array, like: PyTree) -> PyTree:
    """Returns the gradient of the mean cross-entropy with respect to a linear head.

    The logits of the head are a summand of ``logits``. Features are treated as constants. The
    result has the entries of ``like``: a kernel ``[D, C]`` and possibly a bias ``[C]``.
    """
    batch, features = context.batch, jax.lax.stop_gradient(context.outputs.features)
    member = jax.nn.one_hot(batch.labels, logits.shape[-1])
    error = jnp.where(batch.where[:, None], jax.nn.softmax(logits) - member, 0.0)
    error = jax.lax.stop_gradient(error) / jnp.maximum(jnp.sum(batch.where), 1)
    gradient = {"kernel": features.T @ error, "bias": jnp.sum(error, 0)}
    return {name: gradient[name] for name in like}
