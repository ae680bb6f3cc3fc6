"""Shared functions of ``conv_pool``: windows of 2x2 pixels and the positions of their maxima."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array
Pads = tuple[tuple[int, int], tuple[int, int]]


def fit(x: Array, size: int, pads: Pads) -> Array:
    """Pads and crops axes 1 and 2 of ``x`` to the pixels that pooling windows depend on.

    Args:
        x: ``[_, H, W, _]``.
        size: side of the kernel.
        pads: (low, high) padding of rows and columns.

    Returns:
        ``x`` with ``2 h + size - 1`` rows for ``h`` rows of windows, and columns likewise.
    """
    config = [(0, 0, 0)]
    for length, (low, high) in zip(x.shape[1:3], pads, strict=True):
        windows = (length + low + high - size + 1) // 2
        config.append((low, 2 * windows + size - 1 - low - length, 0))
    return lax.pad(x, jnp.zeros((), x.dtype), (*config, (0, 0, 0)))


def maximum(pixels: Sequence[Array]) -> tuple[Array, Array]:
    """Returns the maximum of arrays, and the int8 index of the first array that has it."""
    y, holder = pixels[0], jnp.zeros(pixels[0].shape, jnp.int8)
    for n, pixel in enumerate(pixels[1:], 1):
        larger = pixel > y
        y, holder = jnp.where(larger, pixel, y), jnp.where(larger, jnp.int8(n), holder)
    return y, holder


def first_maximum(four: Sequence[Array], bias: Array) -> tuple[Array, Array]:
    """Adds a bias to the maximum of four arrays and applies ReLU.

    Args:
        four: the pixels of each window, in row-major order.
        bias: broadcasts against them.

    Returns:
        The result, and the int8 index of the first array that has the maximum, or -1 where the
        gradient of ReLU is 0.
    """
    y, holder = maximum(four)
    y = y + bias
    return jax.nn.relu(y), jnp.where(y > 0, holder, jnp.int8(-1))
