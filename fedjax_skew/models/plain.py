"""Networks without residual connections: convolutions followed by dense layers.

Most of them have no normalisation layers, as in the papers that introduced them.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_skew.models.layers import (
    Conv,
    Padding,
    collects_blocks,
    dense,
    max_pool,
    sow_block,
    torch_uniform,
)
from fedjax_skew.models.norm import Norm

Array = jax.Array


class ConvBlock(nn.Module):
    """A convolution, normalisation, maximum over 2x2 windows if ``pool``, and ReLU."""

    features: int
    kernel_size: int
    pool: bool
    padding: Padding
    norm: str
    impl: str
    dtype: Any
    kernel_init: Any

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Maps ``[B, H, W, C]`` to ``[B, H', W', features]``."""
        plain = self.norm == "none"
        fused = self.pool and plain and not collects_blocks(self)
        x = Conv(
            self.features,
            (self.kernel_size, self.kernel_size),
            padding=self.padding,
            use_bias=plain,
            pool_relu=fused,
            impl=self.impl,
            dtype=self.dtype,
            kernel_init=self.kernel_init,
            name="conv",
        )(x)
        if fused:
            return x
        x = Norm(self.norm, dtype=self.dtype, impl=self.impl, name="norm")(x, train, where)
        x = max_pool(x) if self.pool else x
        sow_block(self, x)
        return nn.relu(x)


class Plain(nn.Module):
    """Convolution blocks and dense layers with ReLU; the last dense width is the feature size.

    Without convolutions, it is a multilayer perceptron on the flattened input. Without dense
    layers, the features are the flattened output of the convolutions.

    Attributes:
        convs: one ``(features, pool)`` per convolution, which is followed by pooling if ``pool``.
        dense: widths of the dense layers.
        kernel_size: side of all convolution kernels.
        padding: padding of all convolutions.
        norm: normalisation after each convolution: ``"batch"``, ``"group"`` or ``"none"``.
            Convolutions have a bias only without normalisation.
        conv_impl: implementation of the convolutions and dense layers.
        dtype: dtype of the computation.
        remat: whether to recompute the convolution blocks in the backward pass.
        conv_init: initialiser of the convolution kernels.
        dense_init: initialiser of the dense kernels.
    """

    convs: tuple[tuple[int, bool], ...] = ()
    dense: tuple[int, ...] = ()
    kernel_size: int = 3
    padding: Padding = "VALID"
    norm: str = "none"
    conv_impl: str = "patches"
    dtype: Any = jnp.float32
    remat: bool = False
    conv_init: Any = torch_uniform
    dense_init: Any = torch_uniform

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Maps ``[B, ...]`` to features ``[B, D]``; ``train`` and ``where`` as in :class:`Norm`."""
        block = nn.remat(ConvBlock, static_argnums=(2,)) if self.remat else ConvBlock
        for n, (features, pool) in enumerate(self.convs):
            x = block(
                features=features,
                kernel_size=self.kernel_size,
                pool=pool,
                padding=self.padding,
                norm=self.norm,
                impl=self.conv_impl,
                dtype=self.dtype,
                kernel_init=self.conv_init,
                name=f"block{n}",
            )(x, train, where)
        x = x.reshape(x.shape[0], -1)
        for n, width in enumerate(self.dense):
            x = dense(
                width,
                impl=self.conv_impl,
                dtype=self.dtype,
                kernel_init=self.dense_init,
                name=f"dense{n}",
            )(x)
            sow_block(self, x)
            x = nn.relu(x)
        return x
