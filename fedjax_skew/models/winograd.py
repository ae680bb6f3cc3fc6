"""Winograd's minimal filtering F(2x2, 3x3): a 3x3 convolution with 16 products in place of 36.

Each 2x2 block of the result comes from a 4x4 tile of the image. Sums and differences of the tile's
pixels, multiplied with sums and differences of the kernel's, give the block; the products over
channels are 16 matrix products. In float32 the result differs from the plain sum by about 1e-6 of
its largest value.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, equation 8.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

Array = jax.Array

_TILE = 4


def pays(kernel: Array, out: tuple[int, int]) -> bool:
    """Whether fewer products make up for the sums around them, for a result of ``out`` pixels.

    Few channels make the matrix products too small, a blocky rest too many of them, and a half
    precision the sums too coarse.
    """
    rows, columns, channels, features = kernel.shape
    padded = _even(out[0]) * _even(out[1])
    return (
        (rows, columns) == (3, 3)
        and min(channels, features) >= 32
        and padded <= 1.3 * out[0] * out[1]
        and jnp.finfo(kernel.dtype).bits >= 32
    )


def floats(kernel: Array, out: tuple[int, int]) -> float:
    """Numbers that lie between an image and its result."""
    return _TILE * _even(out[0]) * _even(out[1]) * (kernel.shape[2] + kernel.shape[3])


def transform_kernel(kernel: Array) -> list[list[Array]]:
    """Maps ``[3, 3, Cin, Cout]`` to 4x4 factors ``[Cin, Cout]``: ``G g G^T``."""
    return [_kernel_sums(list(row)) for row in _kernel_sums(list(kernel))]


def conv(x: Array, factors: list[list[Array]]) -> Array:
    """Convolves padded images with a transformed kernel: ``A^T [(G g G^T) * (B^T d B)] A``.

    Args:
        x: ``[B, H + 2, W + 2, Cin]``.
        factors: from :func:`transform_kernel`.

    Returns:
        ``[B, H, W, Cout]``.
    """
    height, width = x.shape[1] - 2, x.shape[2] - 2
    x = jnp.pad(x, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
    rows = _image_sums([x[:, i : i + height : 2] for i in range(_TILE)])
    products = []
    for row, weights in zip(rows, factors, strict=True):
        tiles = _image_sums([row[:, :, j : j + width : 2] for j in range(_TILE)])
        parts = [matmul(tile, w) for tile, w in zip(tiles, weights, strict=True)]
        products.append(jnp.stack(_block_sums(parts), axis=3))
    blocks = jnp.stack(_block_sums(products), axis=2)  # [B, rows, 2, columns, 2, Cout]
    batch, features = x.shape[0], blocks.shape[-1]
    out = blocks.reshape(batch, _even(height), _even(width), features)
    return out[:, :height, :width]


def matmul(x: Array, weights: Array) -> Array:
    """Multiplies the last axis of ``x`` with ``weights [Cin, Cout]``."""
    # Two plain dimensions: the CPU backend reaches its fast matrix product only in this form.
    out = x.reshape(-1, x.shape[-1]) @ weights
    return out.reshape(*x.shape[:-1], weights.shape[-1])


def _image_sums(d: Sequence[Array]) -> list[Array]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _kernel_sums(g: Sequence[Array]) -> list[Array]:
    ends = g[0] + g[2]
    return [g[0], (ends + g[1]) / 2, (ends - g[1]) / 2, g[2]]


def _block_sums(m: Sequence[Array]) -> list[Array]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _even(n: int) -> int:
    return n + n % 2
