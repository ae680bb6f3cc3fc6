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

from fedjax_skew.models import native_norm

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
        relu: whether to apply ReLU to the result.
        impl: ``"native"`` to use a compiled kernel for the statistics of a batch where there is
            one; see ``models.build``.
    """

    kind: str = "batch"
    momentum: float = 0.9
    eps: float = 1e-5
    dtype: Any = jnp.float32
    relu: bool = False
    impl: str = "patches"

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Normalises ``x [B, ..., C]``; ``where`` is a boolean mask ``[B]`` of valid rows."""
        act = nn.relu if self.relu else lambda y: y
        if self.kind == "none":
            return act(x)
        channels = x.shape[-1]
        scale = self.param("scale", nn.initializers.ones_init(), (channels,), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros_init(), (channels,), jnp.float32)
        if self.kind == "group":
            y = _group_normalised(x.astype(jnp.float32), num_groups(channels), self.eps)
            return act((y * scale + bias).astype(self.dtype))
        mean = self.variable("batch_stats", "mean", jnp.zeros, (channels,), jnp.float32)
        var = self.variable("batch_stats", "var", jnp.ones, (channels,), jnp.float32)
        x = x.astype(jnp.float32)
        if not train:
            factor = scale * lax.rsqrt(var.value + self.eps)
            return act((x * factor + (bias - mean.value * factor)).astype(self.dtype))
        where = jnp.ones(x.shape[0], bool) if where is None else where
        if self.impl == "native" and native_norm.supports(channels):
            y, batch_mean, batch_var = native_norm.batch_norm(
                x, where, scale, bias, eps=self.eps, relu=self.relu
            )
        else:
            centred, batch_mean, batch_var = _masked_moments(x, where)
            y = act(centred * (scale * lax.rsqrt(batch_var + self.eps)) + bias)
        if not self.is_initializing():
            count = _count(x, where)
            keep = jnp.where(count > 0, self.momentum, 1.0)
            unbiased = batch_var * (count / jnp.maximum(count - 1, 1))
            mean.value = keep * mean.value + (1 - keep) * lax.stop_gradient(batch_mean)
            var.value = keep * var.value + (1 - keep) * lax.stop_gradient(unbiased)
        return y.astype(self.dtype)


def _count(x: Array, where: Array) -> Array:
    """Returns the number of values per channel in the valid rows."""
    return where.sum(dtype=jnp.float32) * x[0, ..., 0].size


def _masked_moments(x: Array, where: Array) -> tuple[Array, Array, Array]:
    """Returns centred rows (0 where masked), mean and biased variance."""
    axes = tuple(range(x.ndim - 1))
    mask = where.reshape(-1, *[1] * (x.ndim - 1))
    count = jnp.maximum(_count(x, where), 1)
    # Masking the sums of rows needs no masked copy of x.
    mean = jnp.where(where[:, None], x.sum(axes[1:]), 0).sum(0) / count
    centred = jnp.where(mask, x - mean, 0)
    return centred, mean, jnp.square(centred).sum(axes) / count


def _group_normalised(x: Array, groups: int, eps: float) -> Array:
    grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean = grouped.mean((1, 3), keepdims=True)
    centred = grouped - mean
    var = jnp.square(centred).mean((1, 3), keepdims=True)
    return (centred * lax.rsqrt(var + eps)).reshape(x.shape)
