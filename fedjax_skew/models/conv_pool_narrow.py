"""Convolution, maximum over 2x2 windows and ReLU as one operation, for few features.

A matrix product is slow if its last dimension is only a few channels, and so are the subsequent
operations along channels. Here the images are the last axis, ``[H, C, W, B]``, so that all
operations run along pixels and images, and the rows are the first, so that one row of pooling
windows depends on adjacent memory. Each column of the product contains the ``(k + 1) x (k + 1)``
pixels on which one window depends, and each row of kernels gives one of the window's four pixels.
The maximum is then taken over four blocks of rows. Consecutive layers need no transposition,
because the one at the end of a layer and the one at the start of the next cancel.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_skew.models.pooling import Pads, first_maximum, fit

Array = jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def conv_pool_relu(x: Array, kernel: Array, bias: Array, pads: Pads) -> Array:
    """Computes ``conv_pool.conv_pool_relu`` for few features and an odd ``k``."""
    return _forward(x, kernel, bias, pads)[0]


def _forward(x: Array, kernel: Array, bias: Array, pads: Pads) -> tuple[Array, tuple[Array, ...]]:
    planes, rows = _planes(x, kernel.shape[0], pads), _kernel_rows(kernel)

    def one(row: Array) -> tuple[Array, Array]:
        product = rows @ _columns(planes, row, kernel.shape[0], x.shape[0])
        return first_maximum(list(product.reshape(4, bias.size, -1)), bias[:, None])

    windows = (planes.shape[0] - kernel.shape[0] + 1) // 2
    y, holder = lax.map(one, jnp.arange(windows))
    y = y.reshape(*y.shape[:2], -1, x.shape[0]).transpose(3, 0, 2, 1)
    return y, (x, kernel, bias, holder)


def _backward(pads: Pads, residuals: tuple[Array, ...], dy: Array) -> tuple[Array, Array, Array]:
    x, kernel, bias, holder = residuals
    images, size = x.shape[0], kernel.shape[0]
    planes, pull = jax.vjp(functools.partial(_planes, size=size, pads=pads), x)
    rows = _kernel_rows(kernel)
    place = jnp.arange(4, dtype=holder.dtype)[:, None, None]

    def one(sums: tuple[Array, Array, Array], given: tuple[Array, Array, Array]):
        drows, dbias, dplanes = sums
        row, holder, dy = given
        dfour = jnp.where(holder == place, dy, 0).reshape(rows.shape[0], -1)
        drows += lax.dot_general(
            _columns(planes, row, size, images),
            dfour,
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        dbias += jnp.where(holder >= 0, dy, 0).sum(1, dtype=jnp.float32)
        return (drows, dbias, _add_columns(dplanes, rows.T @ dfour, row, size, images)), None

    zeros = (
        jnp.zeros(rows.T.shape, jnp.float32),
        jnp.zeros(bias.shape, jnp.float32),
        jnp.zeros_like(planes),
    )
    dy = dy.transpose(1, 3, 2, 0).reshape(holder.shape)
    given = jnp.arange(len(holder)), holder, dy
    (drows, dbias, dplanes), _ = lax.scan(one, zeros, given)
    (dkernel,) = jax.vjp(_kernel_rows, kernel)[1](drows.T.astype(kernel.dtype))
    return pull(dplanes)[0], dkernel, dbias.astype(bias.dtype)


conv_pool_relu.defvjp(_forward, _backward)


def _planes(x: Array, size: int, pads: Pads) -> Array:
    """Pads ``[B, H, W, C]`` and separates even from odd columns: ``[H, 2 C, W / 2 * B]``."""
    x = fit(x.transpose(3, 1, 2, 0), size, pads)  # Cancels the transposition of a previous layer.
    channels, height, width, images = x.shape
    halves = x.reshape(channels, height, width // 2, 2, images)
    return halves.transpose(1, 0, 3, 2, 4).reshape(height, 2 * channels, -1)


def _kernel_rows(kernel: Array) -> Array:
    """Maps ``[k, k, Cin, Cout]`` to ``[4 Cout, (k + 1) (k + 1) Cin]``.

    Each block of rows contains the kernel at one of four positions in a window that is larger by
    one pixel. The columns are in the order of :func:`_columns`.
    """
    size, _, channels, features = kernel.shape
    places = [
        jnp.pad(kernel, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i in (0, 1) for j in (0, 1)
    ]
    four = jnp.stack(places, 3).reshape(size + 1, (size + 1) // 2, 2, channels, 4 * features)
    return four.transpose(4, 1, 0, 3, 2).reshape(4 * features, -1)


def _columns(planes: Array, row: Array, size: int, images: int) -> Array:
    """Returns the pixels that a row of windows depends on, one column per window and image.

    XLA copies slices with a dynamic position in blocks, and others element by element.
    """
    half = (size + 1) // 2
    width = planes.shape[2] - (half - 1) * images
    shape = (size + 1, planes.shape[1], width)
    shifted = [lax.dynamic_slice(planes, (2 * row, 0, j * images), shape) for j in range(half)]
    return jnp.concatenate(shifted).reshape(-1, width)


def _add_columns(planes: Array, columns: Array, row: Array, size: int, images: int) -> Array:
    """Computes the transpose of :func:`_columns`, which adds the columns to ``planes``."""
    half = (size + 1) // 2
    for j, part in enumerate(columns.reshape(half, size + 1, planes.shape[1], -1)):
        start = (2 * row, 0, j * images)
        old = lax.dynamic_slice(planes, start, part.shape)
        planes = lax.dynamic_update_slice(planes, old + part, start)
    return planes
