"""Convolution, maximum over 2x2 windows and ReLU as one operation, for few features.

A matrix product is slow if one of its dimensions is only a few channels, and so are the subsequent
operations along channels. Here the images are the last axis, ``[C, H, W, n]`` for a few images at a
time, so that all operations run along pixels and images. Each column of the product contains the
``(k + 1) x (k + 1)`` pixels on which one pooling window depends, and each row of kernels gives one
of the window's four pixels. The maximum is then taken over four blocks of rows.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_skew.models.pooling import Pads, first_maximum, fit

Array = jax.Array

# Number of images per product, so that its operands fit in a core's cache.
_IMAGES = 16


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def conv_pool_relu(x: Array, kernel: Array, bias: Array, pads: Pads) -> Array:
    """Computes ``conv_pool.conv_pool_relu`` for few features and an odd ``k``."""
    return _forward(x, kernel, bias, pads)[0]


def _forward(x: Array, kernel: Array, bias: Array, pads: Pads) -> tuple[Array, tuple[Array, ...]]:
    rows = _kernel_rows(kernel)

    def some(x: Array) -> tuple[Array, Array]:
        four = jnp.split(
            _product(rows, _columns(_corners(x, kernel.shape[0], pads), _offsets(kernel))), 4
        )
        return first_maximum(four, bias[:, None, None, None])

    y, holder = lax.map(some, _images_last(x))
    return _images_first(y, x.shape[0]), (x, kernel, bias, holder)


def _backward(pads: Pads, residuals: tuple[Array, ...], dy: Array) -> tuple[Array, Array, Array]:
    x, kernel, bias, holder = residuals
    rows = _kernel_rows(kernel)

    def some(sums: tuple[Array, Array], given: tuple[Array, Array, Array]):
        x, holder, dy = given
        corners = functools.partial(_corners, size=kernel.shape[0], pads=pads)
        z, pull = jax.vjp(corners, x)
        dfour = jnp.concatenate([jnp.where(holder == n, dy, 0) for n in range(4)])
        dbias = jnp.where(holder >= 0, dy, 0).sum((1, 2, 3), dtype=jnp.float32)
        columns = _columns(z, _offsets(kernel))
        drows = lax.dot_general(
            _flat(columns),
            _flat(dfour),
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        (dx,) = pull(_add_columns(_product(rows.T, dfour), z.shape, _offsets(kernel)))
        return (sums[0] + drows, sums[1] + dbias), dx

    zeros = jnp.zeros(rows.T.shape, jnp.float32), jnp.zeros(bias.shape, jnp.float32)
    (drows, dbias), dx = lax.scan(some, zeros, (_images_last(x), holder, _images_last(dy)))
    (dkernel,) = jax.vjp(_kernel_rows, kernel)[1](drows.T.astype(kernel.dtype))
    return _images_first(dx, x.shape[0]), dkernel, dbias.astype(bias.dtype)


conv_pool_relu.defvjp(_forward, _backward)


def _kernel_rows(kernel: Array) -> Array:
    """Maps ``[k, k, Cin, Cout]`` to ``[4 Cout, (k + 1) (k + 1) Cin]``.

    Each block of rows contains the kernel at one of four positions in a window that is larger by
    one pixel.
    """
    size, _, channels, features = kernel.shape
    half = (size + 1) // 2
    places = [
        jnp.pad(kernel, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i in (0, 1) for j in (0, 1)
    ]
    four = jnp.stack(places, 3).reshape(half, 2, half, 2, channels, 4 * features)
    return four.transpose(5, 0, 2, 1, 3, 4).reshape(4 * features, -1)


def _corners(x: Array, size: int, pads: Pads) -> Array:
    """Pads ``[C, H, W, n]`` and separates the pixels at the four corners of 2x2 blocks.

    The result is ``[4 C, H / 2, W / 2, n]``, in which a pooling window depends on a window of
    ``(size + 1) // 2`` pixels.
    """
    x = fit(x, size, pads)
    channels, height, width, images = x.shape
    blocks = x.reshape(channels, height // 2, 2, width // 2, 2, images)
    return blocks.transpose(2, 4, 0, 1, 3, 5).reshape(-1, height // 2, width // 2, images)


def _offsets(kernel: Array) -> list[tuple[int, int]]:
    half = (kernel.shape[0] + 1) // 2
    return [(i, j) for i in range(half) for j in range(half)]


def _columns(z: Array, offsets: list[tuple[int, int]]) -> Array:
    """Concatenates shifted slices of ``z [C, h, w, n]`` along the first axis."""
    height, width = z.shape[1] - offsets[-1][0], z.shape[2] - offsets[-1][1]
    return jnp.concatenate([z[:, i : i + height, j : j + width] for i, j in offsets])


def _add_columns(columns: Array, shape: tuple[int, ...], offsets: list[tuple[int, int]]) -> Array:
    """Computes the transpose of :func:`_columns`, a sum of slices of an array of this shape.

    Adding the slices in place is faster than the sum of padded slices that XLA would generate.
    """
    total = jnp.zeros(shape, columns.dtype)
    for part, (i, j) in zip(jnp.split(columns, len(offsets)), offsets, strict=True):
        old = lax.dynamic_slice(total, (0, i, j, 0), part.shape)
        total = lax.dynamic_update_slice(total, old + part, (0, i, j, 0))
    return total


def _flat(x: Array) -> Array:
    return x.reshape(x.shape[0], -1)


def _product(rows: Array, columns: Array) -> Array:
    return (rows @ _flat(columns)).reshape(-1, *columns.shape[1:])


def _group_size(batch: int) -> int:
    """Returns a group size of at most ``_IMAGES``, if possible a large divisor of the batch."""
    for size in range(min(batch, _IMAGES), _IMAGES // 2, -1):
        if batch % size == 0:
            return size
    return -(-batch // -(-batch // _IMAGES))


def _images_last(x: Array) -> Array:
    """Maps ``[B, H, W, C]`` to groups ``[B / n, C, H, W, n]``; the last is padded with zeros."""
    batch = x.shape[0]
    size = _group_size(batch)
    x = jnp.pad(x, ((0, -batch % size), (0, 0), (0, 0), (0, 0)))
    return x.reshape(-1, size, *x.shape[1:]).transpose(0, 4, 2, 3, 1)


def _images_first(x: Array, batch: int) -> Array:
    """Inverts :func:`_images_last`."""
    x = x.transpose(0, 4, 2, 3, 1)
    return x.reshape(-1, *x.shape[2:])[:batch]
