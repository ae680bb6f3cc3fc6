"""Convolutions by compiled kernels of this package, for CPUs.

A kernel of 3x3 or 5x5 with stride 1 uses Winograd's algorithm with tiles of 6x6 pixels, which needs
a quarter of the products for 3x3 and a third for 5x5; in float32, the result differs from the plain
sum by about 1e-6 of its largest value (3x3) and 1e-5 (5x5). Other kernels, and images with few
channels, use a plain sum. A convolution runs on one core, that of its device.
"""

import functools

import jax
import jax.numpy as jnp

from fedjax_skew import native

Array = jax.Array
Pads = tuple[tuple[int, int], tuple[int, int]]

_MULTIPLE = 16  # Channels of a vector.
_IMAGE_CHANNELS = 3  # Of images, whose gradient is rarely needed.


def supports(kernel: tuple[int, ...], stride: int, dtype: jnp.dtype) -> bool:
    """Returns whether there is a compiled kernel for this shape of a kernel with one group."""
    rows, columns, channels, features = kernel
    return (
        rows == columns
        and (channels % _MULTIPLE == 0 or channels <= _IMAGE_CHANNELS)
        and rows >= max(stride, 2)
        and features % _MULTIPLE == 0
        and dtype == jnp.float32
        and native.available()
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def conv(x: Array, kernel: Array, stride: int, pads: Pads) -> Array:
    """Convolves images with a kernel; supports reverse-mode differentiation of any order.

    Args:
        x: ``[B, H, W, Cin]``.
        kernel: ``[k, k, Cin, Cout]``, of a shape that is supported.
        stride: stride of rows and columns.
        pads: (low, high) padding of rows and columns, less than ``k``.

    Returns:
        ``[B, H', W', Cout]``.
    """
    rows, columns = (
        (n + sum(p) - kernel.shape[0]) // stride + 1
        for n, p in zip(x.shape[1:3], pads, strict=True)
    )
    return _call("conv", (x.shape[0], rows, columns, kernel.shape[3]), x, kernel, stride, pads)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _image_gradient(
    dy: Array, kernel: Array, size: tuple[int, int], stride: int, pads: Pads
) -> Array:
    """Returns the gradient ``[B, *size, Cin]`` of the images."""
    shape = (dy.shape[0], *size, kernel.shape[2])
    if kernel.shape[2] % _MULTIPLE == 0:
        return _call("image_gradient", shape, dy, kernel, stride, pads)

    def conv(x):
        """A sum of products, because XLA's convolution is slow inside a loop."""
        x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
        rows, columns = (1 + stride * (n - 1) for n in dy.shape[1:3])
        side = range(kernel.shape[0])
        return sum(
            x[:, i : i + rows : stride, j : j + columns : stride] @ kernel[i, j]
            for i in side
            for j in side
        )

    return jax.linear_transpose(conv, jax.ShapeDtypeStruct(shape, dy.dtype))(dy)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _kernel_gradient(x: Array, dy: Array, side: int, stride: int, pads: Pads) -> Array:
    """Returns the gradient ``[side, side, Cin, Cout]`` of the kernel."""
    shape = (side, side, x.shape[-1], dy.shape[-1])
    return _call("kernel_gradient", shape, x, dy, stride, pads)


def _call(name: str, shape: tuple[int, ...], a: Array, b: Array, stride: int, pads: Pads) -> Array:
    call = jax.ffi.ffi_call(
        native.target(name),
        jax.ShapeDtypeStruct(shape, jnp.float32),
        vmap_method="broadcast_all",
    )
    return call(a, b, stride=stride, top=pads[0][0], left=pads[1][0])


def _conv_backward(stride, pads, residuals, dy):
    x, kernel = residuals
    dx = _image_gradient(dy, kernel, x.shape[1:3], stride, pads)
    return dx, _kernel_gradient(x, dy, kernel.shape[0], stride, pads)


def _image_gradient_backward(size, stride, pads, residuals, g):
    dy, kernel = residuals
    return conv(g, kernel, stride, pads), _kernel_gradient(g, dy, kernel.shape[0], stride, pads)


def _kernel_gradient_backward(side, stride, pads, residuals, g):
    x, dy = residuals
    return _image_gradient(dy, g, x.shape[1:3], stride, pads), conv(x, g, stride, pads)


conv.defvjp(lambda x, k, *static: (conv(x, k, *static), (x, k)), _conv_backward)
_image_gradient.defvjp(
    lambda dy, k, *static: (_image_gradient(dy, k, *static), (dy, k)), _image_gradient_backward
)
_kernel_gradient.defvjp(
    lambda x, dy, *static: (_kernel_gradient(x, dy, *static), (x, dy)), _kernel_gradient_backward
)
