"""Arithmetic on pytrees of arrays."""

from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any


def add(a: PyTree, b: PyTree) -> PyTree:
    """``a + b``."""
    return jax.tree.map(jnp.add, a, b)


def subtract(a: PyTree, b: PyTree) -> PyTree:
    """``a - b``."""
    return jax.tree.map(jnp.subtract, a, b)


def scale(factor: jax.Array | float, a: PyTree) -> PyTree:
    """``factor * a``."""
    return jax.tree.map(lambda x: factor * x, a)


def add_scaled(a: PyTree, factor: jax.Array | float, b: PyTree) -> PyTree:
    """``a + factor * b``."""
    return jax.tree.map(lambda x, y: x + factor * y, a, b)


def zeros(a: PyTree) -> PyTree:
    """Zeros of the same shapes."""
    return jax.tree.map(jnp.zeros_like, a)


def dot(a: PyTree, b: PyTree) -> jax.Array:
    """Inner product over all entries."""
    return sum(
        (jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)),
        start=jnp.float32(0),
    )


def norm(a: PyTree) -> jax.Array:
    """Euclidean norm over all entries."""
    return jnp.sqrt(dot(a, a))


def select(pred: jax.Array, new: PyTree, old: PyTree) -> PyTree:
    """Leaf by leaf ``new`` where the scalar ``pred`` holds, else ``old``."""
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), new, old)


def weighted_mean(weights: jax.Array, stacked: PyTree) -> PyTree:
    """``sum_m weights[m] * stacked[m]`` for weights ``[M]`` that sum to 1."""
    return jax.tree.map(lambda a: jnp.tensordot(weights, a, 1), stacked)


def index(stacked: PyTree, i: jax.Array | int) -> PyTree:
    """Entry ``i`` of the leading axis of every leaf."""
    return jax.tree.map(lambda a: a[i], stacked)


def stack(trees: list[PyTree]) -> PyTree:
    """Puts equal pytrees on a new leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *trees)
