"""Winograd's minimal filtering F(2x2, rxr): convolutions with fewer products.

Each 2x2 block of the result is computed from a tile of ``(r + 1) x (r + 1)`` pixels: linear
combinations of the tile's pixels are multiplied by linear combinations of the kernel's entries. The
products over channels are matrix products. A 3x3 kernel needs 16 products instead of 36, and a 5x5
kernel needs 36 instead of 100. In float32, the result differs from the plain sum by about 1e-6
(3x3) and 1e-5 (5x5) of its largest value.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Matrix = tuple[tuple[float, ...], ...]

_BLOCK = 2


class Transforms(NamedTuple):
    """The matrices ``A^T``, ``G`` and ``B^T`` of Lavin and Gray's equation 8."""

    block: Matrix
    kernel: Matrix
    image: Matrix


@functools.cache
def transforms(size: int) -> Transforms:
    """Returns the transforms for a kernel of ``size`` by the Cook-Toom construction.

    A product of polynomials is evaluated at the points 0, 1, -1, ... and infinity.
    """
    points = np.array([0.0, 1.0, -1.0, 2.0, -2.0])[:size]
    others = [np.delete(points, n) for n in range(size)]
    block = np.zeros((_BLOCK, size + 1))
    kernel = np.zeros((size + 1, size))
    image = np.zeros((size + 1, size + 1))
    for n, point in enumerate(points):
        block[:, n] = point ** np.arange(_BLOCK)
        kernel[n] = point ** np.arange(size) / np.prod(point - others[n])
        image[n, :size] = np.poly(others[n])[::-1]
    block[-1, -1] = kernel[-1, -1] = 1.0
    image[-1] = np.poly(points)[::-1]
    return Transforms(*(tuple(map(tuple, m.tolist())) for m in (block, kernel, image)))


def pays(kernel: Array, out: tuple[int, int]) -> bool:
    """Returns whether this is faster than a plain product, for a result of ``out`` pixels.

    It is not worthwhile with few channels, whose matrix products are too small, or with outputs
    that need much padding to whole blocks. It is not used in half precision, in which the sums
    would be too inaccurate.
    """
    rows, columns, channels, features = kernel.shape
    padded = _even(out[0]) * _even(out[1])
    return (
        rows == columns
        and rows in (3, 5)
        and min(channels, features) >= 32
        and padded <= 1.3 * out[0] * out[1]
        and jnp.finfo(kernel.dtype).bits >= 32
    )


def floats(kernel: Array, out: tuple[int, int]) -> float:
    """Returns the number of intermediate values per image."""
    tiles = _even(out[0]) * _even(out[1]) / _BLOCK**2
    return (kernel.shape[0] + 1) ** 2 * tiles * (kernel.shape[2] + kernel.shape[3])


def transform_kernel(kernel: Array) -> list[list[Array]]:
    """Maps ``[r, r, Cin, Cout]`` to ``(r + 1) x (r + 1)`` factors ``[Cin, Cout]``: ``G g G^T``."""
    matrix = transforms(kernel.shape[0]).kernel
    return [_combine(matrix, list(row)) for row in _combine(matrix, list(kernel))]


def conv(x: Array, factors: list[list[Array]]) -> Array:
    """Convolves padded images with a transformed kernel: ``A^T [(G g G^T) * (B^T d B)] A``.

    Args:
        x: ``[B, H + r - 1, W + r - 1, Cin]``.
        factors: from :func:`transform_kernel`.

    Returns:
        ``[B, H, W, Cout]``.
    """
    tile = len(factors)
    block, _, image = transforms(tile - 1)
    height, width = x.shape[1] - tile + 2, x.shape[2] - tile + 2
    x = jnp.pad(x, ((0, 0), (0, height % _BLOCK), (0, width % _BLOCK), (0, 0)))
    rows = _combine(image, [x[:, i : i + height : _BLOCK] for i in range(tile)])
    products = []
    for row, weights in zip(rows, factors, strict=True):
        tiles = _combine(image, [row[:, :, j : j + width : _BLOCK] for j in range(tile)])
        parts = [matmul(part, w) for part, w in zip(tiles, weights, strict=True)]
        products.append(jnp.stack(_combine(block, parts), axis=3))
    blocks = jnp.stack(_combine(block, products), axis=2)  # [B, rows, 2, columns, 2, Cout]
    out = blocks.reshape(x.shape[0], _even(height), _even(width), blocks.shape[-1])
    return out[:, :height, :width]


def matmul(x: Array, weights: Array) -> Array:
    """Multiplies the last axis of ``x`` with ``weights [Cin, Cout]``."""
    # The CPU backend uses its fast matrix product only for two dimensions.
    out = x.reshape(-1, x.shape[-1]) @ weights
    return out.reshape(*x.shape[:-1], weights.shape[-1])


def _combine(matrix: Matrix, arrays: Sequence[Array]) -> list[Array]:
    """Returns one linear combination of the arrays per row of the matrix, omitting zeros."""
    sums = []
    for row in matrix:
        terms = [(c, a) for c, a in zip(row, arrays, strict=True) if c != 0]
        total = terms[0][1] if terms[0][0] == 1 else terms[0][0] * terms[0][1]
        for c, a in terms[1:]:
            total = total + a if c == 1 else total - a if c == -1 else total + c * a
        sums.append(total)
    return sums


def _even(n: int) -> int:
    return n + n % _BLOCK
