"""The choice of a convolution's implementation, and one by slices and a matrix product, for CPUs.

On the CPU backend, the gradient of a convolution's kernel is many times slower inside
``lax.while_loop`` or ``lax.scan`` than outside of a loop, and ``vmap`` over stacked kernels turns a
convolution into a grouped one, which is even slower. A matrix product has neither problem: ``vmap``
turns it into a batched matrix product. This module is optimised for CPUs and their caches;
accelerators use XLA's own operation.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_skew.errors import unknown
from fedjax_skew.models import conv_pool, native_conv

Array = jax.Array
Padding = str | int | Sequence[tuple[int, int]]
Pads = tuple[tuple[int, int], tuple[int, int]]
Shape = tuple[int, ...]

CONV_IMPLS = ("native", "patches", "xla", "grouped")

# Bytes of intermediate values that fit in a core's cache.
_CACHE = 2**21


Choice = Literal["xla", "grouped", "native", "patches", "pooled"]


def choose(
    impl: str,
    kernel: Shape,
    *,
    stride: int = 1,
    groups: int = 1,
    dtype: Any = jnp.float32,
    pooled: bool = False,
) -> Choice:
    """Chooses the implementation of a convolution.

    Args:
        impl: one of ``CONV_IMPLS``.
        kernel: shape of the kernel.
        stride: stride of both axes.
        groups: number of groups of channels.
        dtype: dtype of the computation.
        pooled: whether the convolution has stride 1, one group and a bias, and is followed by
            pooling over 2x2 windows and ReLU.

    Returns:
        ``"xla"`` for XLA's own operation, ``"grouped"`` for :func:`grouped.conv`, ``"native"`` for
        :func:`native_conv.conv`, ``"patches"`` for :func:`conv_patches`, or ``"pooled"`` for
        ``conv_pool.conv_pool_relu``.
    """
    if impl not in CONV_IMPLS:
        raise unknown("conv_impl", impl, CONV_IMPLS)
    if impl == "xla":
        return "xla"
    if impl == "grouped":
        return "grouped"
    if impl == "native" and pooled and conv_pool.supports(kernel, dtype):
        return "pooled"
    if impl == "native" and groups == 1 and native_conv.supports(kernel, stride, dtype):
        return "native"
    return "patches"


def explicit_padding(padding: Padding, size: Shape, window: Shape, strides: Shape) -> Pads:
    """Converts any specification of padding to (low, high) padding of rows and columns."""
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
    """Returns the shifted pixels for every offset in the window, in row-major order."""
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
    """Convolves by slices and a matrix product instead of a convolution operation.

    Shifted (strided) slices of the image are concatenated along the channel axis and multiplied by
    the flattened kernel. A 1x1 kernel needs no slices. If it moves less memory, only the shifts
    along a row are concatenated; the product then has one output per row of the kernel, and the
    outputs are shifted along the columns and added. A depthwise kernel uses a sum of shifted
    products, because a matrix product with one input channel would be limited by memory.

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
    if feature_group_count == 1:
        return _dense_conv(x, kernel, strides, pads)
    if feature_group_count == x.shape[-1]:
        return _depthwise_conv(_pad(x, pads), kernel, strides)
    groups = zip(
        jnp.split(x, feature_group_count, axis=-1),
        jnp.split(kernel, feature_group_count, axis=-1),
        strict=True,
    )
    return jnp.concatenate([_dense_conv(part, k, strides, pads) for part, k in groups], axis=-1)


def _pad(x: Array, pads: Pads) -> Array:
    return x if pads == ((0, 0), (0, 0)) else jnp.pad(x, ((0, 0), *pads, (0, 0)))


def _dense_conv(x: Array, kernel: Array, strides: tuple[int, int], pads: Pads) -> Array:
    rows, columns, channels, features = kernel.shape
    height, width = (n + sum(p) for n, p in zip(x.shape[1:3], pads, strict=True))
    out = ((height - rows) // strides[0] + 1, (width - columns) // strides[1] + 1)
    by_rows = (columns * channels + rows * features) * height / out[0]
    whole = rows * columns * channels
    conv: Callable[[Array], Array]
    if strides == (1, 1) and by_rows < whole:
        conv = functools.partial(_row_conv, kernel=kernel)
        floats = math.prod(out) * by_rows
    else:
        conv = functools.partial(_patch_conv, kernel=kernel, strides=strides)
        floats = math.prod(out) * (whole + features)
    if rows * columns == 1 or whole < 64:  # Too few intermediate values for groups to be faster.
        return conv(_pad(x, pads))
    return _in_groups(lambda part: conv(_pad(part, pads)), x, 4 * floats)


def _in_groups(conv: Callable[[Array], Array], x: Array, bytes_per_image: float) -> Array:
    """Convolves a few images at a time.

    The intermediate patches are several times larger than an image and its result. For a few
    images, they fit in the cache, and recomputing them for the gradient is faster than loading them
    from memory.
    """
    batch = x.shape[0]
    most = max(int(_CACHE // bytes_per_image), 1)
    size = next(n for n in range(min(most, batch), 0, -1) if batch % n == 0)
    if size == batch:
        return conv(x)
    conv = jax.checkpoint(conv, prevent_cse=False)
    out = lax.map(conv, x.reshape(-1, size, *x.shape[1:]))
    return out.reshape(batch, *out.shape[2:])


def _patch_conv(x: Array, kernel: Array, strides: tuple[int, int]) -> Array:
    shifted = _shifted(x, kernel.shape[:2], strides)
    patches = shifted[0] if len(shifted) == 1 else jnp.concatenate(shifted, axis=-1)
    return _matmul(patches, kernel.reshape(-1, kernel.shape[-1]))


def _row_conv(x: Array, kernel: Array) -> Array:
    rows, columns, channels, features = kernel.shape
    patches = jnp.concatenate(_shifted(x, (1, columns), (1, 1)), axis=-1)
    weights = kernel.reshape(rows, columns * channels, features).swapaxes(0, 1)
    return _add_rows(_matmul(patches, weights.reshape(columns * channels, rows * features)), rows)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _add_rows(partial: Array, rows: int) -> Array:
    """Adds blocks of channels ``[B, H, W, rows * C]``, each shifted by one row from the last."""
    height, features = partial.shape[1] - rows + 1, partial.shape[-1] // rows
    return _sum(
        partial[:, n : n + height, :, n * features : (n + 1) * features] for n in range(rows)
    )


def _add_rows_backward(rows: int, _: None, dy: Array) -> tuple[Array]:
    # Equal to what differentiation gives, a sum of padded arrays, which XLA does not vectorise.
    edge = rows - 1
    height = dy.shape[1] + edge
    padded = _pad(dy, ((edge, edge), (0, 0)))
    shifted = [padded[:, edge - n : edge - n + height] for n in range(rows)]
    return (jnp.concatenate(shifted, axis=-1),)


_add_rows.defvjp(lambda partial, rows: (_add_rows(partial, rows), None), _add_rows_backward)


def _matmul(x: Array, weights: Array) -> Array:
    """Multiplies the last axis of ``x`` with ``weights [Cin, Cout]``."""
    # The CPU backend uses its fast matrix product only for two dimensions.
    out = x.reshape(-1, x.shape[-1]) @ weights
    return out.reshape(*x.shape[:-1], weights.shape[-1])


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
