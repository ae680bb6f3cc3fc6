"""Convolution as slices and a matrix product.

On the CPU backend a convolution inside ``lax.while_loop`` or ``lax.scan`` runs many times slower
than outside, and ``vmap`` over stacked kernels turns it into a grouped convolution, which is
slower still. A matrix product has neither fault: ``vmap`` makes it a batched matrix product.
"""

import functools
import operator
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array
Padding = str | int | Sequence[tuple[int, int]]
Shape = tuple[int, ...]


def explicit_padding(
    padding: Padding, size: Shape, window: Shape, strides: Shape
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns (low, high) padding of rows and columns for any way of writing it."""
    if isinstance(padding, int):
        return ((padding, padding), (padding, padding))
    if isinstance(padding, str):
        rows, columns = lax.padtype_to_pads(size, window, strides, padding)
    else:
        rows, columns = padding
    return (rows[0], rows[1]), (columns[0], columns[1])


def check_size(shape: Shape, window: Shape, padding: Padding) -> None:
    """Raises a ``ValueError`` if an image of this shape cannot be convolved."""
    if len(shape) != 4:
        raise ValueError(f"x has shape {shape}, but a convolution needs images [B, H, W, C].")
    pads = explicit_padding(padding, shape[1:3], window, (1, 1))
    if any(n + sum(p) < k for n, p, k in zip(shape[1:3], pads, window, strict=True)):
        raise ValueError(
            f"an image of {shape[1]}x{shape[2]} pixels is too small for a kernel of "
            f"{window[0]}x{window[1]} with padding={padding!r}."
        )


def _shifted(x: Array, window: Shape, strides: Shape) -> list[Array]:
    """Returns, for every offset of the window in row-major order, the pixels it meets."""
    batch, height, width, channels = x.shape
    rows = (height - window[0]) // strides[0] + 1
    columns = (width - window[1]) // strides[1] + 1
    return [
        lax.slice(
            x,
            (0, i, j, 0),
            (batch, i + (rows - 1) * strides[0] + 1, j + (columns - 1) * strides[1] + 1, channels),
            (1, *strides, 1),
        )
        for i in range(window[0])
        for j in range(window[1])
    ]


def conv_patches(
    x: Array,
    kernel: Array,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: Padding = "SAME",
    feature_group_count: int = 1,
) -> Array:
    """Convolves with slices and a matrix product instead of a convolution operation.

    Shifted (strided) slices of the image are put side by side on the channel axis and multiplied
    with the flattened kernel. A 1x1 kernel needs no slices. Where it moves less memory, only the
    shifts along a row are put side by side; the product then has one output for every kernel row,
    and these are added with a shift along the columns. A depthwise kernel becomes a sum of
    shifted products, because a matrix product with one input channel would only move memory.

    Args:
        x: ``[B, H, W, Cin]``.
        kernel: ``[kh, kw, Cin / feature_group_count, Cout]``.
        strides: steps in rows and columns.
        padding: ``"SAME"``, ``"VALID"``, one number for all sides, or two (low, high) pairs.
        feature_group_count: as in ``lax.conv_general_dilated``.

    Returns:
        ``[B, H', W', Cout]``.
    """
    pads = explicit_padding(padding, x.shape[1:3], kernel.shape[:2], strides)
    if pads != ((0, 0), (0, 0)):
        x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    if feature_group_count == 1:
        return _dense_conv(x, kernel, strides)
    if feature_group_count == x.shape[-1]:
        return _depthwise_conv(x, kernel, strides)
    groups = zip(
        jnp.split(x, feature_group_count, axis=-1),
        jnp.split(kernel, feature_group_count, axis=-1),
        strict=True,
    )
    return jnp.concatenate([_dense_conv(part, k, strides) for part, k in groups], axis=-1)


def _dense_conv(x: Array, kernel: Array, strides: tuple[int, int]) -> Array:
    rows, columns, channels, features = kernel.shape
    height = x.shape[1]
    by_rows = (columns * channels + rows * features) * height / max(height - rows + 1, 1)
    if strides == (1, 1) and by_rows < rows * columns * channels:
        return _row_conv(x, kernel)
    shifted = _shifted(x, (rows, columns), strides)
    patches = shifted[0] if len(shifted) == 1 else jnp.concatenate(shifted, axis=-1)
    return _product(patches, kernel.reshape(-1, features))


def _row_conv(x: Array, kernel: Array) -> Array:
    rows, columns, channels, features = kernel.shape
    patches = jnp.concatenate(_shifted(x, (1, columns), (1, 1)), axis=-1)
    weights = kernel.reshape(rows, columns * channels, features).swapaxes(0, 1)
    partial = _product(patches, weights.reshape(columns * channels, rows * features))
    height = x.shape[1] - rows + 1
    return _sum(
        partial[:, n : n + height, :, n * features : (n + 1) * features] for n in range(rows)
    )


def _product(patches: Array, weights: Array) -> Array:
    # Two plain dimensions: the CPU backend reaches its fast matrix product only in this form.
    out = patches.reshape(-1, patches.shape[-1]) @ weights
    return out.reshape(*patches.shape[:-1], weights.shape[-1])


def _depthwise_conv(x: Array, kernel: Array, strides: tuple[int, int]) -> Array:
    shifted = _shifted(x, kernel.shape[:2], strides)
    channels = x.shape[-1]
    multiplier = kernel.shape[-1] // channels
    weights = kernel.reshape(len(shifted), channels, multiplier)
    if multiplier == 1:
        return _sum(part * weights[n, :, 0] for n, part in enumerate(shifted))
    out = _sum(part[..., None] * weights[n] for n, part in enumerate(shifted))
    return out.reshape(*out.shape[:-2], channels * multiplier)


def _sum(parts: Iterable[Array]) -> Array:
    return functools.reduce(operator.add, parts)
