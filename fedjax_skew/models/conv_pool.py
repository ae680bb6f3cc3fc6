"""Convolution, maximum over 2x2 windows and ReLU as one operation by a compiled kernel, for CPUs.

The result of the convolution is four times as large as the pooled result, and with few channels it
costs more to move it than to compute it. Here it never leaves the registers, and the backward pass
only visits the pixels that hold the maximum of a window. Their positions are computed only if there
is a backward pass.
"""

import functools

import jax
import jax.numpy as jnp

from fedjax_skew import native
from fedjax_skew.models import grouped

Array = jax.Array
Pads = tuple[tuple[int, int], tuple[int, int]]


def supports(kernel: tuple[int, ...], dtype: jnp.dtype) -> bool:
    """Returns whether there is a compiled kernel for this shape that is faster than others.

    With many channels, the convolution takes most of the time, and other implementations of it are
    faster.
    """
    rows, columns, channels, _ = kernel
    return (
        rows == columns
        and rows in (3, 5)
        and channels < 16
        and dtype == jnp.float32
        and native.available()
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def conv_pool_relu(x: Array, kernel: Array, bias: Array, pads: Pads) -> Array:
    """Computes ``relu(max_pool(conv(x, kernel) + bias))`` with windows of 2x2.

    The first of equal values in a window receives the gradient, as in PyTorch. Rows and columns
    that do not fill a window are dropped. Only reverse-mode differentiation is supported.

    Args:
        x: ``[B, H, W, Cin]``.
        kernel: ``[k, k, Cin, Cout]``, of a shape that is supported; the convolution has stride 1.
        bias: ``[Cout]``.
        pads: (low, high) padding of rows and columns.

    Returns:
        ``[B, H' // 2, W' // 2, Cout]``, where the convolution has ``H'`` rows and ``W'`` columns.
    """
    out = jax.ShapeDtypeStruct(_result_shape(x, kernel, pads), jnp.float32)
    return _call("conv_pool", out, pads, x, kernel, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _with_places(x: Array, kernel: Array, bias: Array, pads: Pads) -> tuple[Array, Array]:
    """Also returns the int8 positions of the maxima, -1 where the gradient of ReLU is 0."""
    shape = _result_shape(x, kernel, pads)
    types = (jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct(shape, jnp.int8))
    return _call("conv_pool_places", types, pads, x, kernel, bias)


def _result_shape(x: Array, kernel: Array, pads: Pads) -> tuple[int, ...]:
    rows, columns = (
        (n + sum(p) - kernel.shape[0] + 1) // 2 for n, p in zip(x.shape[1:3], pads, strict=True)
    )
    return x.shape[0], rows, columns, kernel.shape[3]


def _forward(x, kernel, bias, pads):
    y, holder = _with_places(x, kernel, bias, pads)
    return y, (x, kernel, holder)


def _backward(pads, residuals, dy):
    x, kernel, holder = residuals
    dx = _image_gradient(kernel, holder, dy, x.shape[1:3], pads)
    return dx, *_kernel_gradient(x, holder, dy, kernel.shape[0], pads)


def _forward_with_places(x, kernel, bias, pads):
    y, residuals = _forward(x, kernel, bias, pads)
    return (y, residuals[-1]), residuals


conv_pool_relu.defvjp(_forward, _backward)
_with_places.defvjp(
    _forward_with_places, lambda pads, residuals, dy: _backward(pads, residuals, dy[0])
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _image_gradient(
    kernel: Array, holder: Array, dy: Array, size: tuple[int, int], pads: Pads
) -> Array:
    """Returns the gradient ``[B, *size, Cin]`` of the images."""
    out = jax.ShapeDtypeStruct((dy.shape[0], *size, kernel.shape[2]), jnp.float32)
    return _call("conv_pool_image_gradient", out, pads, kernel, holder, dy)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _kernel_gradient(
    x: Array, holder: Array, dy: Array, side: int, pads: Pads
) -> tuple[Array, Array]:
    """Returns the gradients of the kernel and the bias."""
    shapes = (side, side, x.shape[-1], dy.shape[-1]), (dy.shape[-1],)
    out = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    return _call("conv_pool_kernel_gradient", out, pads, x, holder, dy)


def _call(name, out, pads, *arrays):
    call = jax.ffi.ffi_call(native.target(name), out, vmap_method="broadcast_all")
    return call(*arrays, top=pads[0][0], left=pads[1][0])


def _chosen(x: Array, kernel: Array, bias: Array, holder: Array, pads: Pads) -> Array:
    """Computes the operation with given positions of the maxima, by operations of XLA."""
    y = grouped.xla_conv(x, kernel, (1, 1), pads, 1) + bias
    images, rows, columns, features = holder.shape
    windows = y[:, : 2 * rows, : 2 * columns].reshape(images, rows, 2, columns, 2, features)
    place = jnp.arange(4, dtype=holder.dtype).reshape(2, 1, 2, 1)
    return jnp.where(place == holder[:, :, None, :, None], windows, 0).sum((2, 4))


# Second derivatives: for given positions of the maxima, the operation is linear in the images, and
# in the kernel with the bias.


def _image_gradient_backward(size, pads, residuals, g):
    kernel, holder, dy = residuals
    none = jnp.zeros(dy.shape[-1], dy.dtype)
    _, pull = jax.vjp(lambda kernel: _chosen(g, kernel, none, holder, pads), kernel)
    return *pull(dy), None, _chosen(g, kernel, none, holder, pads)


def _kernel_gradient_backward(side, pads, residuals, g):
    x, holder, dy = residuals
    _, pull = jax.vjp(lambda x: _chosen(x, *g, holder, pads), x)
    return *pull(dy), None, _chosen(x, *g, holder, pads)


_image_gradient.defvjp(
    lambda kernel, holder, dy, *static: (
        _image_gradient(kernel, holder, dy, *static),
        (kernel, holder, dy),
    ),
    _image_gradient_backward,
)
_kernel_gradient.defvjp(
    lambda x, holder, dy, *static: (_kernel_gradient(x, holder, dy, *static), (x, holder, dy)),
    _kernel_gradient_backward,
)
