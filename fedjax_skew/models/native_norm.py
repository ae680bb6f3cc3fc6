"""Batch normalisation with ReLU by compiled kernels of this package, for CPUs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_skew import native

Array = jax.Array

_MULTIPLE = 16  # Channels of a vector.


def supports(channels: int) -> bool:
    """Returns whether there is a compiled kernel for this number of channels."""
    return channels % _MULTIPLE == 0 and native.available()


def batch_norm(
    x: Array, where: Array, scale: Array, bias: Array, *, eps: float, relu: bool
) -> tuple[Array, Array, Array]:
    """Normalises by the moments of the valid rows; supports reverse-mode differentiation.

    Args:
        x: float32 ``[B, ..., C]``.
        where: ``[B]``, True for valid rows; the result of other rows is the bias.
        scale: ``[C]``.
        bias: ``[C]``.
        eps: constant added to the variance.
        relu: whether to apply ReLU to the result.

    Returns:
        The normalised rows, and the mean and the biased variance ``[C]``, which have no gradient.
    """
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    y, mean, var = _batch_norm(rows, where, scale, bias, float(eps), relu)
    return y.reshape(x.shape), lax.stop_gradient(mean), lax.stop_gradient(var)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _batch_norm(x, where, scale, bias, eps, relu):
    types = _like(x), _like(scale), _like(scale)
    return _call("batch_norm", types, eps, relu, x, where, scale, bias)


def _forward(x, where, scale, bias, eps, relu):
    y, mean, var = _batch_norm(x, where, scale, bias, eps, relu)
    return (y, mean, var), (x, where, scale, bias, mean, var)


def _backward(eps, relu, residuals, cotangents):
    x, where, scale, bias, mean, var = residuals
    dx, dscale, dbias = _gradient(x, where, scale, bias, mean, var, cotangents[0], eps, relu)
    return dx, None, dscale, dbias


_batch_norm.defvjp(_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(7, 8))
def _gradient(x, where, scale, bias, mean, var, dy, eps, relu):
    types = _like(x), _like(scale), _like(scale)
    return _call("batch_norm_gradient", types, eps, relu, x, where, scale, bias, mean, var, dy)


def _gradient_backward(eps, relu, residuals, cotangents):
    """Second derivatives, by operations of XLA."""
    x, where, scale, bias, dy = residuals

    def gradient(x, scale, bias, dy):
        run = functools.partial(_plain, where=where, eps=eps, relu=relu)
        return jax.vjp(run, x, scale, bias)[1](dy)

    dx, dscale, dbias, ddy = jax.vjp(gradient, x, scale, bias, dy)[1](cotangents)
    return dx, None, dscale, dbias, None, None, ddy


_gradient.defvjp(
    lambda x, where, scale, bias, mean, var, dy, *static: (
        _gradient(x, where, scale, bias, mean, var, dy, *static),
        (x, where, scale, bias, dy),
    ),
    _gradient_backward,
)


def _plain(x, scale, bias, where, eps, relu):
    mask = where[:, None, None]
    count = jnp.maximum(where.sum() * x.shape[1], 1)
    centred = jnp.where(mask, x - jnp.where(mask, x, 0).sum((0, 1)) / count, 0)
    y = centred * (scale * lax.rsqrt(jnp.square(centred).sum((0, 1)) / count + eps)) + bias
    return jax.nn.relu(y) if relu else y


def _like(x):
    return jax.ShapeDtypeStruct(x.shape, jnp.float32)


def _call(name, types, eps, relu, *arrays):
    call = jax.ffi.ffi_call(native.target(name), types, vmap_method="broadcast_all")
    return call(*arrays, eps=np.float32(eps), relu=relu)
