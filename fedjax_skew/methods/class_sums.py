"""Sums of features by class, accumulated over batches."""

import jax
import jax.numpy as jnp

from fedjax_skew.methods.base import Batch, Client, PyTree


def zero_sums(client: Client) -> PyTree:
    """Returns empty sums ``{"sum": [C, D], "count": [C]}``."""
    width, num_classes = client.params["head"]["kernel"].shape
    return {"sum": jnp.zeros((num_classes, width)), "count": jnp.zeros(num_classes)}


def add_batch(sums: PyTree, features: jax.Array, batch: Batch) -> PyTree:
    """Adds the features ``[B, D]`` of a batch; no gradient flows through them."""
    member = jax.nn.one_hot(batch.labels, sums["count"].shape[0]) * batch.where[:, None]
    features = jax.lax.stop_gradient(features)
    new = jnp.matmul(member.T, features, precision=jax.lax.Precision.HIGHEST)
    return {"sum": sums["sum"] + new, "count": sums["count"] + member.sum(0)}


def class_means(sums: PyTree) -> jax.Array:
    """Returns the mean features ``[C, D]``; 0 for classes without samples."""
    return sums["sum"] / jnp.maximum(sums["count"], 1)[:, None]
