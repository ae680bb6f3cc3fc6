"""Convolution, maximum over 2x2 windows and ReLU as one operation on a CPU.

Between an image and its pooled result lies the result of the convolution, four times as large. It
stays in a core's cache when the three operations run on a few images at a time, and the backward
pass needs nothing of it but the place of each maximum.
"""

import jax

from fedjax_skew.models import conv_pool_narrow, conv_pool_wide
from fedjax_skew.models.pooling import Pads

Array = jax.Array

# XLA hands a convolution of more features to a fast library.
_NARROW = 16


def pays(kernel: tuple[int, ...]) -> bool:
    """Whether this is faster than the operations one by one, for a kernel of this shape.

    With many channels the convolution itself takes most of the time, and other forms of it are
    faster. With few features the product has ``(k + 1)^2 / k^2`` times the operations of the
    convolution, which is too much for a small kernel.
    """
    rows, columns, channels, features = kernel
    if rows != columns or channels >= 16:
        return False
    return features > _NARROW or (rows % 2 == 1 and rows >= 5)


def conv_pool_relu(x: Array, kernel: Array, bias: Array, pads: Pads) -> Array:
    """Computes ``relu(max_pool(conv(x, kernel) + bias))`` with windows of 2x2.

    The first of equal values in a window receives the gradient, as in PyTorch. Rows and columns
    left over by the windows are dropped. Reverse-mode differentiation only.

    Args:
        x: ``[B, H, W, Cin]``.
        kernel: ``[k, k, Cin, Cout]``, of a shape that :func:`pays`; the convolution has stride 1.
        bias: ``[Cout]``.
        pads: (low, high) padding of rows and columns.

    Returns:
        ``[B, H' // 2, W' // 2, Cout]`` where ``H'`` and ``W'`` are the convolution's.
    """
    form = conv_pool_wide if kernel.shape[-1] > _NARROW else conv_pool_narrow
    return form.conv_pool_relu(x, kernel, bias, pads)
