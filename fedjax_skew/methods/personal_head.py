"""A second head that stays with its client and is trained beside the network (FedRoD, FedLoGe)."""

import jax
import jax.numpy as jnp

from fedjax_skew.methods.base import LossContext, PyTree


def head_gradient(context: LossContext, logits: jax.Array, like: PyTree) -> PyTree:
    """Gradient of the mean cross-entropy of ``logits`` in a linear head that is part of them.

    Features count as constants. The result has the entries of ``like``: a kernel ``[D, C]`` and
    perhaps a bias ``[C]``.
    """
    batch, features = context.batch, jax.lax.stop_gradient(context.outputs.features)
    member = jax.nn.one_hot(batch.labels, logits.shape[-1])
    error = jnp.where(batch.where[:, None], jax.nn.softmax(logits) - member, 0.0)
    error = jax.lax.stop_gradient(error) / jnp.maximum(jnp.sum(batch.where), 1)
    gradient = {"kernel": features.T @ error, "bias": jnp.sum(error, 0)}
    return {name: gradient[name] for name in like}
