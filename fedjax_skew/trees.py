"""Operations on pytrees of arrays that ``optax.tree`` does not provide."""

from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any


def select(pred: jax.Array, new: PyTree, old: PyTree) -> PyTree:
    """Returns ``new`` if the scalar ``pred`` is true, otherwise ``old``, for every leaf."""
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), new, old)


def weighted_mean(weights: jax.Array, stacked: PyTree) -> PyTree:
    """Returns ``sum_m weights[m] * stacked[m]`` for weights ``[M]`` that sum to 1."""
    return jax.tree.map(lambda a: jnp.tensordot(weights, a, 1), stacked)


def index(stacked: PyTree, i: jax.Array | int) -> PyTree:
    """Returns entry ``i`` of the leading axis of every leaf."""
    return jax.tree.map(lambda a: a[i], stacked)


def stack(trees: list[PyTree]) -> PyTree:
    """Stacks pytrees of the same structure along a new leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *trees)
