"""Networks without residual connections: a stack of convolutions, then dense layers.

None of them has normalisation layers, as in the papers they come from.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_skew.models.layers import Conv, Padding, torch_uniform

Array = jax.Array


class ConvBlock(nn.Module):
    """Convolution, maximum over 2x2 windows if ``pool``, ReLU."""

    features: int
    kernel_size: int
    pool: bool
    padding: Padding
    impl: str
    dtype: Any
    kernel_init: Any

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps ``[B, H, W, C]`` to ``[B, H', W', features]``."""
        x = Conv(
            self.features,
            (self.kernel_size, self.kernel_size),
            padding=self.padding,
            pool_relu=self.pool,
            impl=self.impl,
            dtype=self.dtype,
            kernel_init=self.kernel_init,
            name="conv",
        )(x)
        return x if self.pool else nn.relu(x)


class Plain(nn.Module):
    """Convolution blocks, then dense layers with ReLU; the last dense width is the feature size.

    Without convolutions it is a multilayer perceptron on the flattened input, and without dense
    layers the features are the flattened result itself.

    Attributes:
        convs: one ``(features, pool)`` for each convolution; pooling follows where it is true.
        dense: widths of the dense layers.
        kernel_size: side of all convolution kernels.
        padding: padding of all convolutions.
        conv_impl: implementation of the convolutions.
        dtype: type of the arithmetic.
        remat: recompute the inside of each convolution block in the backward pass.
        conv_init: initialiser of the convolution kernels.
        dense_init: initialiser of the dense kernels.
    """

    convs: tuple[tuple[int, bool], ...] = ()
    dense: tuple[int, ...] = ()
    kernel_size: int = 3
    padding: Padding = "VALID"
    conv_impl: str = "auto"
    dtype: Any = jnp.float32
    remat: bool = False
    conv_init: Any = torch_uniform
    dense_init: Any = torch_uniform

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Maps ``[B, ...]`` to features ``[B, D]``. ``train`` and ``where`` change nothing."""
        block = nn.remat(ConvBlock) if self.remat else ConvBlock
        for n, (features, pool) in enumerate(self.convs):
            x = block(
                features=features,
                kernel_size=self.kernel_size,
                pool=pool,
                padding=self.padding,
                impl=self.conv_impl,
                dtype=self.dtype,
                kernel_init=self.conv_init,
                name=f"block{n}",
            )(x)
        x = x.reshape(x.shape[0], -1)
        for n, width in enumerate(self.dense):
            layer = nn.Dense(width, dtype=self.dtype, kernel_init=self.dense_init, name=f"dense{n}")
            x = nn.relu(layer(x))
        return x
