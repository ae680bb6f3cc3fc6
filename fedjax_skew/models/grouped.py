"""XLA's convolution, with gradients that are fast on accelerators when clients are stacked.

``vmap`` over clients turns a convolution into a grouped one, which the libraries of accelerators
support. The gradient of its kernel is a convolution whose window is the whole image; ``vmap`` also
turns this one into a grouped convolution, which no library supports. Here the gradient is written
as the transpose of the grouped convolution instead, which is the library's own backward operation.
"""

import functools

import jax
import jax.numpy as jnp
from jax import custom_batching, lax

Array = jax.Array
Pads = tuple[tuple[int, int], tuple[int, int]]
Pair = tuple[int, int]


def conv(x: Array, kernel: Array, strides: Pair, pads: Pads, groups: int = 1) -> Array:
    """Convolves images with a kernel; supports reverse-mode differentiation of any order.

    Args:
        x: ``[B, H, W, Cin]``.
        kernel: ``[kh, kw, Cin / groups, Cout]``; for a 1x1 kernel with one group, stride 1 and no
            padding, a matrix product is used.
        strides: steps in rows and columns.
        pads: (low, high) padding of rows and columns.
        groups: as ``feature_group_count`` in ``lax.conv_general_dilated``.

    Returns:
        ``[B, H', W', Cout]``.
    """
    # Not with strides, because XLA for GPUs crashes on a product of strided slices.
    if kernel.shape[:2] == (1, 1) == strides and groups == 1 and pads == ((0, 0), (0, 0)):
        return x @ kernel[0, 0]
    return _conv(x, kernel, strides, pads, groups)


def xla_conv(x: Array, kernel: Array, strides: Pair, pads: Pads, groups: int) -> Array:
    """Convolves images with a kernel by XLA's own operation; arguments as for :func:`conv`."""
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        pads,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _conv(x: Array, kernel: Array, strides: Pair, pads: Pads, groups: int) -> Array:
    return xla_conv(x, kernel, strides, pads, groups)


def _conv_forward(x, kernel, strides, pads, groups):
    return xla_conv(x, kernel, strides, pads, groups), (x, kernel)


def _conv_backward(strides, pads, groups, residuals, dy):
    x, kernel = residuals
    dx = _image_gradient(x, kernel, dy, strides, pads, groups)
    return dx, _kernel_gradient(x, dy, kernel.shape[:2], strides, pads, groups)


_conv.defvjp(_conv_forward, _conv_backward)


def _image_gradient(
    x: Array, kernel: Array, dy: Array, strides: Pair, pads: Pads, groups: int
) -> Array:
    (dx,) = jax.linear_transpose(lambda x: xla_conv(x, kernel, strides, pads, groups), x)(dy)
    return dx


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5))
def _kernel_gradient(
    x: Array, dy: Array, window: Pair, strides: Pair, pads: Pads, groups: int
) -> Array:
    """Returns the gradient ``[kh, kw, Cin / groups, Cout]`` of the kernel."""

    @custom_batching.custom_vmap
    def one(x, dy):
        shape = (*window, x.shape[-1] // groups, dy.shape[-1])
        kernel = jax.ShapeDtypeStruct(shape, x.dtype)
        return jax.linear_transpose(lambda k: xla_conv(x, k, strides, pads, groups), kernel)(dy)[0]

    @one.def_vmap
    def stacked(size, batched, x, dy):
        """Turns clients into groups of channels; the groups of each client stay together."""
        x, dy = (
            _merge(a if has else jnp.broadcast_to(a, (size, *a.shape)))
            for a, has in zip((x, dy), batched, strict=True)
        )
        merged = _kernel_gradient(x, dy, window, strides, pads, size * groups)
        apart = merged.reshape(*merged.shape[:3], size, -1)
        return jnp.moveaxis(apart, 3, 0), True

    return one(x, dy)


def _merge(a: Array) -> Array:
    """Maps ``[n, B, H, W, C]`` to ``[B, H, W, n C]``."""
    a = jnp.moveaxis(a, 0, 3)
    return a.reshape(*a.shape[:3], -1)


def _kernel_gradient_forward(x, dy, window, strides, pads, groups):
    return _kernel_gradient(x, dy, window, strides, pads, groups), (x, dy)


def _kernel_gradient_backward(window, strides, pads, groups, residuals, g):
    x, dy = residuals
    return (
        _image_gradient(x, g, dy, strides, pads, groups),
        _conv(x, g, strides, pads, groups),
    )


_kernel_gradient.defvjp(_kernel_gradient_forward, _kernel_gradient_backward)
