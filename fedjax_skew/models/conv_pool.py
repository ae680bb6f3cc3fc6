"""Convolution, maximum over 2x2 windows and ReLU as one operation on a CPU.

The result of the convolution is four times as large as the pooled result. It stays in a core's
cache if the three operations run on a few images or rows at a time, and the backward pass only
needs the position of each maximum.
"""

import jax

from fedjax_skew.models import conv_pool_narrow, conv_pool_wide
from fedjax_skew.models.pooling import Pads

Array = jax.Array

# XLA uses a fast library for convolutions with more features.
_NARROW = 16


def pays(kernel: tuple[int, ...]) -> bool:
    """Returns whether this is faster than separate operations, for a kernel of this shape.

    With many channels, the convolution takes most of the time, and other implementations of it are
    faster. With few features, the product has ``(k + 1)^2 / k^2`` times the operations of the
    convolution, which is too much for a small kernel.
    """
    rows, columns, channels, features = kernel
    if rows != columns or channels >= 16:
        return False
    return features > _NARROW or (rows % 2 == 1 and rows >= 5)


def conv_pool_relu(x: Array, kernel: Array, bias: Array, pads: Pads) -> Array:
    """Computes ``relu(max_pool(conv(x, kernel) + bias))`` with windows of 2x2.

    The first of equal values in a window receives the gradient, as in PyTorch. Rows and columns
    that do not fill a window are dropped. Only reverse-mode differentiation is supported.

    Args:
        x: ``[B, H, W, Cin]``.
        kernel: ``[k, k, Cin, Cout]``, of a shape that :func:`pays`; the convolution has stride 1.
        bias: ``[Cout]``.
        pads: (low, high) padding of rows and columns.

    Returns:
        ``[B, H' // 2, W' // 2, Cout]``, where the convolution has ``H'`` rows and ``W'`` columns.
    """
    form = conv_pool_wide if kernel.shape[-1] > _NARROW else conv_pool_narrow
    return form.conv_pool_relu(x, kernel, bias, pads)
