"""Client drift: how long the clients' updates are and how far they point apart.

An update is a pytree ``local parameters - global parameters``. Two forms are given. The stacked
form has every update of the cohort on a leading axis ``[M, ...]`` and gives one number per client.
The streaming form never holds more than a chunk: chunks are turned into sums, sums are merged, and
the cohort's averages follow exactly, including the mean cosine, because

    sum_k w_k cos(u_k, m) = <sum_k w_k u_k / ||u_k||, m> / ||m||,   m = sum_k w_k u_k / sum_k w_k,

needs only the sum of the unit vectors beside the sum of the updates.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

_TINY = 1e-30


class DriftSums(NamedTuple):
    """Weighted sums over clients; they add up over chunks and devices.

    Attributes:
        weight: ``sum w_k``.
        norm: ``sum w_k ||u_k||``.
        squared_norm: ``sum w_k ||u_k||^2``.
        update: pytree, ``sum w_k u_k``.
        direction: pytree, ``sum w_k u_k / ||u_k||``.
    """

    weight: chex.Array
    norm: chex.Array
    squared_norm: chex.Array
    update: chex.ArrayTree
    direction: chex.ArrayTree


def update_norms(updates: chex.ArrayTree) -> chex.Array:
    """Euclidean norm of every update over all parameters.

    Args:
        updates: pytree of ``[M, ...]``.

    Returns:
        Norms, float32 ``[M]``.
    """
    return jnp.sqrt(_inner(updates, updates))


def cosine_to_mean(updates: chex.ArrayTree, weights: chex.Array | None = None) -> chex.Array:
    """Cosine between every update and the weighted mean of all.

    Args:
        updates: pytree of ``[M, ...]``.
        weights: non-negative ``[M]``, normally sample counts; equal weights when left out. A
            padded client has weight 0.

    Returns:
        Cosines, float32 ``[M]``; 0 for an update of length 0.
    """
    norms = update_norms(updates)
    weights = jnp.ones_like(norms) if weights is None else jnp.asarray(weights, jnp.float32)
    # The cosine does not depend on the length of the mean, so the sum serves.
    total = _weighted_sum(updates, weights)
    products = jax.vmap(_dot, in_axes=(0, None))(updates, total)
    lengths = norms * jnp.sqrt(_dot(total, total))
    return jnp.where(lengths > 0, products / jnp.maximum(lengths, _TINY), 0.0)


def drift_sums(updates: chex.ArrayTree, weights: chex.Array) -> DriftSums:
    """The sums of one chunk of clients.

    Args:
        updates: pytree of ``[M, ...]``.
        weights: ``[M]``, 0 for padded clients.
    """
    weights = jnp.asarray(weights, jnp.float32)
    norms = update_norms(updates)
    units = jnp.where(norms > 0, weights / jnp.maximum(norms, _TINY), 0.0)
    return DriftSums(
        weight=weights.sum(),
        norm=(weights * norms).sum(),
        squared_norm=(weights * jnp.square(norms)).sum(),
        update=_weighted_sum(updates, weights),
        direction=_weighted_sum(updates, units),
    )


def merge(first: DriftSums, second: DriftSums) -> DriftSums:
    """The sums of two disjoint sets of clients together."""
    return jax.tree.map(jnp.add, first, second)


def drift_statistics(sums: DriftSums) -> dict[str, chex.Array]:
    """Averages over the cohort.

    Args:
        sums: merged sums of all clients of the round.

    Returns:
        Scalars: ``update_norm`` (weighted mean of the clients' norms), ``mean_update_norm`` (norm
        of the weighted mean update), ``cosine_to_mean`` (weighted mean cosine) and ``diversity``
        (mean squared norm over squared norm of the mean: 1 when all updates are equal, growing
        with drift).
    """
    weight = jnp.maximum(sums.weight, _TINY)
    length = jnp.sqrt(_dot(sums.update, sums.update))
    mean_length = length / weight
    cosine = _dot(sums.direction, sums.update) / jnp.maximum(length * weight, _TINY)
    diversity = sums.squared_norm / weight / jnp.maximum(jnp.square(mean_length), _TINY)
    moving = length > 0
    return {
        "update_norm": sums.norm / weight,
        "mean_update_norm": mean_length,
        "cosine_to_mean": jnp.where(moving, cosine, 0.0),
        "diversity": jnp.where(moving, diversity, 1.0),
    }


def _dot(first: chex.ArrayTree, second: chex.ArrayTree) -> Any:
    """Inner product of two pytrees, accumulated in float32 even for bfloat16 parameters."""
    products = jax.tree.map(
        lambda a, b: jnp.sum(a.astype(jnp.float32) * b.astype(jnp.float32)), first, second
    )
    return sum(jax.tree.leaves(products), jnp.float32(0.0))


def _inner(first: chex.ArrayTree, second: chex.ArrayTree) -> chex.Array:
    return jax.vmap(_dot)(first, second)


def _weighted_sum(updates: chex.ArrayTree, weights: chex.Array) -> chex.ArrayTree:
    return jax.tree.map(lambda u: jnp.tensordot(weights, u.astype(jnp.float32), axes=1), updates)
