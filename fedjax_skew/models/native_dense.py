"""Products of dense layers by a compiled kernel of this package, for CPUs.

With layers and batches of usual sizes, it is faster than XLA, which copies both operands of the
gradient of a layer's weights before it multiplies them.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_skew import native

Array = jax.Array

_MIN_FEATURES = 16  # Numbers in a vector of the kernel.


def dot_general(x: Array, kernel: Array, dimension_numbers: Any, **options: Any) -> Array:
    """Computes ``lax.dot_general`` for ``flax.linen.Dense``; shapes and dtypes are free.

    The compiled kernel is used for ``[B, D]`` times ``[D, F]`` in float32.
    """
    if x.ndim == 2 and x.dtype == kernel.dtype == jnp.float32 and native.available():
        return dot(x, kernel)
    return jax.lax.dot_general(x, kernel, dimension_numbers, **options)


@jax.custom_vjp
def dot(x: Array, kernel: Array) -> Array:
    """Multiplies ``[B, D]`` and ``[D, F]``; supports reverse-mode differentiation of any order."""
    if kernel.shape[1] < _MIN_FEATURES:
        return x @ kernel
    return _call(x, kernel, x.shape[0], transposed=False)


@jax.custom_vjp
def _kernel_gradient(x: Array, dy: Array) -> Array:
    """Returns ``x.T @ dy``."""
    if dy.shape[1] < _MIN_FEATURES:
        return x.T @ dy
    return _call(x, dy, x.shape[1], transposed=True)


def _call(a: Array, b: Array, rows: int, *, transposed: bool) -> Array:
    out = jax.ShapeDtypeStruct((rows, b.shape[1]), jnp.float32)
    call = jax.ffi.ffi_call(native.target("dense"), out, vmap_method="broadcast_all")
    return call(a, b, transposed=transposed)


def _dot_backward(residuals, dy):
    x, kernel = residuals
    return dy @ kernel.T, _kernel_gradient(x, dy)


def _kernel_gradient_backward(residuals, g):
    x, dy = residuals
    return dy @ g.T, dot(x, g)


dot.defvjp(lambda x, kernel: (dot(x, kernel), (x, kernel)), _dot_backward)
_kernel_gradient.defvjp(lambda x, dy: (_kernel_gradient(x, dy), (x, dy)), _kernel_gradient_backward)
