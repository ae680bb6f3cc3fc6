"""Convolution, maximum over 2x2 windows and ReLU as one operation, for many features.

The convolution is XLA's own, in the only form for which XLA uses a fast library on a CPU inside a
loop. The gradient of the kernel is a product of shifted images, with one row per position in the
kernel, and the gradient of the result.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap

from fedjax_skew.models.pooling import Pads, first_maximum, fit

Array = jax.Array

# Bytes of intermediate values that fit in a core's cache.
_CACHE = 2**20


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def conv_pool_relu(x: Array, kernel: Array, bias: Array, pads: Pads) -> Array:
    """Computes ``conv_pool.conv_pool_relu`` for many features."""
    return _forward(x, kernel, bias, pads)[0]


def _forward(x: Array, kernel: Array, bias: Array, pads: Pads) -> tuple[Array, tuple[Array, ...]]:
    def some(x: Array) -> tuple[Array, Array]:
        y = _conv(fit(x, kernel.shape[0], pads), kernel)
        return first_maximum([y[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], bias)

    size = _group_size(x, kernel)
    y, holder = (_join(a) for a in lax.map(some, _split(x, size)))
    return y, (x, kernel, bias, holder)


def _backward(pads: Pads, residuals: tuple[Array, ...], dy: Array) -> tuple[Array, Array, Array]:
    x, kernel, bias, holder = residuals
    side, _, channels, features = kernel.shape
    flipped = kernel[::-1, ::-1].swapaxes(2, 3)

    def some(sums: tuple[Array, Array], given: tuple[Array, Array, Array]):
        x, holder, dy = given
        images, height, width, _ = dy.shape
        place = jnp.arange(4, dtype=jnp.int8).reshape(2, 1, 2, 1)
        chosen = place == holder[:, :, None, :, None]
        dz = jnp.where(chosen, dy[:, :, None, :, None], 0)
        dz = dz.reshape(images, 2 * height, 2 * width, features)
        dbias = jnp.where(holder >= 0, dy, 0).sum((0, 1, 2), dtype=jnp.float32)
        fitted, pull = jax.vjp(lambda x: fit(x, side, pads), x)
        dkernel = jnp.matmul(
            _rows(fitted, side), dz.reshape(-1, features), preferred_element_type=jnp.float32
        )
        edge = side - 1
        (dx,) = pull(_conv(jnp.pad(dz, ((0, 0), (edge, edge), (edge, edge), (0, 0))), flipped))
        return (sums[0] + dkernel, sums[1] + dbias), dx

    size = _group_size(x, kernel)
    zeros = (
        jnp.zeros((side * side * channels, features), jnp.float32),
        jnp.zeros(features, jnp.float32),
    )
    groups = _split(x, size), _split(holder, size), _split(dy, size)
    (dkernel, dbias), dx = lax.scan(some, zeros, groups)
    dkernel = dkernel.reshape(kernel.shape).astype(kernel.dtype)
    return _join(dx), dkernel, dbias.astype(bias.dtype)


conv_pool_relu.defvjp(_forward, _backward)


@jax.custom_vjp
def _conv(x: Array, kernel: Array) -> Array:
    """Convolves ``[n, H, W, Cin]`` without padding; stacked kernels are applied in sequence."""
    return _one_after_another(x, kernel)


@sequential_vmap
def _one_after_another(x: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _sum_over_kernel(x: Array, kernel: Array) -> Array:
    rows, columns = kernel.shape[:2]
    height, width = x.shape[1] - rows + 1, x.shape[2] - columns + 1
    places = [(i, j) for i in range(rows) for j in range(columns)]
    return sum(
        (x[:, i : i + height, j : j + width] @ kernel[i, j] for i, j in places),
        start=jnp.zeros((), x.dtype),
    )


# Only used for second derivatives.
_conv.defvjp(
    lambda x, kernel: (_conv(x, kernel), (x, kernel)),
    lambda residuals, dy: jax.vjp(_sum_over_kernel, *residuals)[1](dy),
)


def _rows(x: Array, side: int) -> Array:
    """Maps ``[n, H, W, C]`` to shifted images ``[side * side * C, n * H' * W']``."""
    height, width = x.shape[1] - side + 1, x.shape[2] - side + 1
    planes = x.transpose(3, 0, 1, 2)
    shifted = [
        planes[:, :, i : i + height, j : j + width] for i in range(side) for j in range(side)
    ]
    return jnp.concatenate(shifted).reshape(side * side * x.shape[-1], -1)


def _group_size(x: Array, kernel: Array) -> int:
    """Returns the number of images that fit in the cache together, a divisor of the batch."""
    floats = x.shape[1] * x.shape[2] * (kernel.shape[-1] + kernel[..., 0].size)
    most = max(int(_CACHE // (4 * floats)), 1)
    return next(n for n in range(min(most, x.shape[0]), 0, -1) if x.shape[0] % n == 0)


def _split(x: Array, size: int) -> Array:
    return x.reshape(-1, size, *x.shape[1:])


def _join(x: Array) -> Array:
    return x.reshape(-1, *x.shape[2:])
