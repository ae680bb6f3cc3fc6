"""Layers that are fast when many clients' models are stacked and trained in a compiled loop.

:class:`Conv` has the parameters of ``flax.linen.Conv`` for every implementation, so that
checkpoints do not depend on it. Images are ``[B, H, W, C]``.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_skew.models import grouped, native_conv, native_dense
from fedjax_skew.models.conv import Padding, check_size, choose, conv_patches, explicit_padding
from fedjax_skew.models.conv_pool import conv_pool_relu

Array = jax.Array

# Kernel initialisers, named after their origin.
# PyTorch's default for linear and convolution layers: uniform in +-1/sqrt(fan_in).
torch_uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
# He et al. (2015) by fan-out, used for the kernels of residual and VGG networks.
he_fan_out = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class Conv(nn.Module):
    """A 2-D convolution with the parameters of ``flax.linen.Conv`` and several implementations.

    Attributes:
        features: number of output channels.
        kernel_size: rows and columns of the kernel.
        strides: stride of both axes.
        padding: see :func:`conv_patches`.
        feature_group_count: number of groups; for a depthwise convolution, the number of input
            channels.
        use_bias: whether a bias is added.
        pool_relu: whether to apply the maximum over 2x2 windows and ReLU.
        impl: one of ``conv.CONV_IMPLS``; see :func:`conv.choose`.
        dtype: dtype of the computation; parameters are float32.
        kernel_init: initialiser of the kernel. Biases start at zero.
    """

    features: int
    kernel_size: tuple[int, int] = (3, 3)
    strides: int = 1
    padding: Padding = "SAME"
    feature_group_count: int = 1
    use_bias: bool = True
    pool_relu: bool = False
    impl: str = "patches"
    dtype: Any = jnp.float32
    kernel_init: Callable[..., Array] = torch_uniform

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps ``[B, H, W, Cin]`` to ``[B, H', W', features]``."""
        window = tuple(self.kernel_size)
        strides = (self.strides, self.strides)
        groups = self.feature_group_count
        check_size(x.shape, window, self.padding)
        shape = (*window, x.shape[-1] // groups, self.features)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32).astype(self.dtype)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros_init(), (self.features,), jnp.float32)
            bias = bias.astype(self.dtype)
        x = x.astype(self.dtype)
        pads = explicit_padding(self.padding, x.shape[1:3], window, strides)
        impl = choose(
            self.impl,
            shape,
            stride=self.strides,
            groups=groups,
            dtype=self.dtype,
            pooled=self.pool_relu and self.use_bias and self.strides == 1 and groups == 1,
        )
        if impl == "pooled":
            return conv_pool_relu(x, kernel, bias, pads)
        if impl == "native":
            y = native_conv.conv(x, kernel, self.strides, pads)
        elif impl == "patches":
            y = conv_patches(x, kernel, strides=strides, padding=pads, feature_group_count=groups)
        elif impl == "grouped":
            y = grouped.conv(x, kernel, strides, pads, groups)
        else:
            y = grouped.xla_conv(x, kernel, strides, pads, groups)
        y = y + bias if self.use_bias else y
        # The ReLU of the maximum equals the maximum of the ReLUs and needs a quarter of the work.
        return nn.relu(max_pool(y)) if self.pool_relu else y


def dense(features: int, *, impl: str, **options: Any) -> nn.Dense:
    """Returns a ``flax.linen.Dense`` whose product suits an implementation of convolutions."""
    product = native_dense.dot_general if impl == "native" else None
    return nn.Dense(features, dot_general=product, **options)


def _windows(x: Array, window: int) -> Array:
    batch, height, width, channels = x.shape
    rows, columns = height // window, width // window
    x = x[:, : rows * window, : columns * window]
    return x.reshape(batch, rows, window, columns, window, channels)


def _corners(x: Array, window: int) -> list[Array]:
    """Returns the pixels at each position of the windows, in row-major order."""
    height, width = (n // window * window for n in x.shape[1:3])
    return [x[:, i:height:window, j:width:window] for i in range(window) for j in range(window)]


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def max_pool(x: Array, window: int = 2) -> Array:
    """Takes the maximum over non-overlapping windows, dropping incomplete windows.

    This is equivalent to ``nn.max_pool(x, (w, w), (w, w), "VALID")``, but is computed as maxima of
    strided slices, because the gradient of a windowed reduction is a scatter, which is slow inside
    a loop on the CPU backend. The first of equal values in a window receives the gradient, as in
    PyTorch.

    Args:
        x: ``[B, H, W, C]``.
        window: side and stride of the windows, at most 11.

    Returns:
        ``[B, H // window, W // window, C]``.
    """
    return functools.reduce(jnp.maximum, _corners(x, window))


@max_pool.defjvp
def _max_pool_jvp(
    window: int, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    y, *others = _corners(primals[0], window)
    holder = jnp.zeros(y.shape, jnp.int8)
    for n, pixel in enumerate(others, 1):
        larger = pixel > y
        y, holder = jnp.where(larger, pixel, y), jnp.where(larger, jnp.int8(n), holder)
    place = jnp.arange(window**2, dtype=jnp.int8).reshape(window, 1, window, 1)
    chosen = place == holder[:, :, None, :, None]
    return y, jnp.where(chosen, _windows(tangents[0], window), 0).sum(axis=(2, 4))


def global_average_pool(x: Array) -> Array:
    """Maps ``[B, H, W, C]`` to ``[B, C]`` by averaging over all pixels, in float32."""
    return x.mean(axis=(1, 2), dtype=jnp.float32)


def collects_blocks(module: nn.Module) -> bool:
    """Returns whether the caller collects ``blocks``, the outputs of stages before activation."""
    return not module.is_initializing() and module.is_mutable_collection("blocks")


def sow_block(module: nn.Module, x: Array) -> None:
    """Sows ``x [B, ..., C]``, averaged over pixels, if ``blocks`` are collected."""
    if collects_blocks(module):
        pooled = x.mean(axis=tuple(range(1, x.ndim - 1)), dtype=jnp.float32)
        module.sow("blocks", "output", pooled)
