"""Normalisation that ignores padded rows.

Batches are padded to a common size, so the statistics of a batch must be computed from its valid
rows. :class:`Norm` takes a mask of the rows; a batch without valid rows does not change the running
statistics.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array

NORMS = ("batch", "group", "none")


def num_groups(channels: int) -> int:
    """Returns the number of groups of GroupNorm, the largest divisor of ``channels`` allowed.

    There are at most 32 groups of at least two channels each: normalising a group of one channel
    would erase the signal of an image of one pixel.
    """
    limit = max(1, min(32, channels // 2))
    return max(g for g in range(1, limit + 1) if channels % g == 0)


class Norm(nn.Module):
    """Batch or group normalisation over the last axis of ``[B, ..., C]``, with scale and bias.

    ``kind="batch"`` normalises with the mean and the biased variance of the rows where ``where``
    is true. The running values in the collection ``batch_stats`` follow PyTorch: ``running =
    momentum * running + (1 - momentum) * batch``, with the unbiased variance. The output of rows
    that ``where`` masks is the bias, so that their content cannot overflow. A batch without valid
    rows does not change the running values. ``train=False`` normalises with the running values.

    ``kind="group"`` normalises each row separately over groups of channels (see
    :func:`num_groups`) and has no running values. ``kind="none"`` returns the input.

    The name of a module of this class must start with ``norm``, by which
    ``fedjax_skew.models.norm_mask`` finds its parameters.

    Attributes:
        kind: ``"batch"``, ``"group"`` or ``"none"``.
        momentum: share of the old running value that is kept; PyTorch's momentum is 1 minus this.
        eps: constant added to the variance.
        dtype: dtype of the result. Statistics are float32.
    """

    kind: str = "batch"
    momentum: float = 0.9
    eps: float = 1e-5
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Normalises ``x [B, ..., C]``; ``where`` is a boolean mask ``[B]`` of valid rows."""
        if self.kind == "none":
            return x
        channels = x.shape[-1]
        scale = self.param("scale", nn.initializers.ones_init(), (channels,), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros_init(), (channels,), jnp.float32)
        if self.kind == "group":
            y = _group_normalised(x.astype(jnp.float32), num_groups(channels), self.eps)
            return (y * scale + bias).astype(self.dtype)
        mean = self.variable("batch_stats", "mean", jnp.zeros, (channels,), jnp.float32)
        var = self.variable("batch_stats", "var", jnp.ones, (channels,), jnp.float32)
        x = x.astype(jnp.float32)
        if not train:
            factor = scale * lax.rsqrt(var.value + self.eps)
            return (x * factor + (bias - mean.value * factor)).astype(self.dtype)
        centred, batch_mean, batch_var, count = _masked_moments(x, where)
        if not self.is_initializing():
            keep = jnp.where(count > 0, self.momentum, 1.0)
            unbiased = batch_var * (count / jnp.maximum(count - 1, 1))
            mean.value = keep * mean.value + (1 - keep) * lax.stop_gradient(batch_mean)
            var.value = keep * var.value + (1 - keep) * lax.stop_gradient(unbiased)
        return (centred * (scale * lax.rsqrt(batch_var + self.eps)) + bias).astype(self.dtype)


def _masked_moments(x: Array, where: Array | None) -> tuple[Array, Array, Array, Array]:
    """Returns centred rows (0 where masked), mean, biased variance and the number of values."""
    axes = tuple(range(x.ndim - 1))
    per_row = x[0, ..., 0].size
    if where is None:
        count = jnp.float32(x.shape[0] * per_row)
        mean = x.mean(axes)
        centred = x - mean
    else:
        mask = where.reshape(-1, *[1] * (x.ndim - 1))
        count = where.sum(dtype=jnp.float32) * per_row
        # Masking the sums of rows needs no masked copy of x.
        total = jnp.where(where[:, None], x.sum(axes[1:]), 0).sum(0)
        mean = total / jnp.maximum(count, 1)
        centred = jnp.where(mask, x - mean, 0)
    return centred, mean, jnp.square(centred).sum(axes) / jnp.maximum(count, 1), count


def _group_normalised(x: Array, groups: int, eps: float) -> Array:
    grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean = grouped.mean((1, 3), keepdims=True)
    centred = grouped - mean
    var = jnp.square(centred).mean((1, 3), keepdims=True)
    return (centred * lax.rsqrt(var + eps)).reshape(x.shape)
