"""Products of dense layers whose gradient is a compiled kernel of this package, for CPUs.

XLA copies both operands of the gradient of a layer's weights before it multiplies them, which takes
a fifth of its time with layers and batches of usual sizes.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_skew import native

Array = jax.Array

_MIN_FEATURES = 16  # Numbers in a vector of the kernel.


def dot_general(x: Array, kernel: Array, dimension_numbers: Any, **options: Any) -> Array:
    """Computes ``lax.dot_general`` for ``flax.linen.Dense``; shapes and dtypes are free.

    The compiled kernel is used for the gradient of ``[B, D]`` times ``[D, F]`` in float32.
    """
    if x.ndim == 2 and x.dtype == kernel.dtype == jnp.float32 and native.available():
        return dot(x, kernel)
    return jax.lax.dot_general(x, kernel, dimension_numbers, **options)


@jax.custom_vjp
def dot(x: Array, kernel: Array) -> Array:
    """Multiplies ``[B, D]`` and ``[D, F]``; supports reverse-mode differentiation of any order."""
    return x @ kernel


@jax.custom_vjp
def _kernel_gradient(x: Array, dy: Array) -> Array:
    """Returns ``x.T @ dy``."""
    if dy.shape[1] < _MIN_FEATURES:
        return x.T @ dy
    out = jax.ShapeDtypeStruct((x.shape[1], dy.shape[1]), jnp.float32)
    call = jax.ffi.ffi_call(native.target("dense_gradient"), out, vmap_method="broadcast_all")
    return call(x, dy)


def _dot_backward(residuals, dy):
    x, kernel = residuals
    return dot(dy, kernel.T), _kernel_gradient(x, dy)


def _kernel_gradient_backward(residuals, g):
    x, dy = residuals
    return dot(dy, g.T), dot(x, g)


dot.defvjp(lambda x, kernel: (dot(x, kernel), (x, kernel)), _dot_backward)
_kernel_gradient.defvjp(lambda x, dy: (_kernel_gradient(x, dy), (x, dy)), _kernel_gradient_backward)
