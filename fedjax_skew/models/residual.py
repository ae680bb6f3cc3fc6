"""Residual networks for small images: ResNet-8, ResNet-18, ResNet-32 and MobileNetV2.

All of them start with a 3x3 convolution of stride 1 instead of the ImageNet stem, and end with an
average over all pixels, so that images may have any size. Padding is explicit instead of
``"SAME"``, because the two differ by one pixel for stride 2, and the published networks pad both
sides by one pixel.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_skew.models.layers import (
    Conv,
    collects_blocks,
    global_average_pool,
    he_fan_out,
    sow_block,
    torch_uniform,
)
from fedjax_skew.models.norm import Norm

Array = jax.Array


class ConvNorm(nn.Module):
    """A convolution with size-preserving padding, and normalisation; without it, a bias.

    With ``relu``, ReLU follows.
    """

    features: int
    kernel_size: int = 3
    strides: int = 1
    feature_group_count: int = 1
    norm: str = "batch"
    conv_impl: str = "patches"
    dtype: Any = jnp.float32
    kernel_init: Any = he_fan_out
    relu: bool = False

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Maps ``[B, H, W, C]`` to ``[B, ceil(H / strides), ceil(W / strides), features]``."""
        x = Conv(
            self.features,
            (self.kernel_size, self.kernel_size),
            strides=self.strides,
            padding=self.kernel_size // 2,
            feature_group_count=self.feature_group_count,
            use_bias=self.norm == "none",
            impl=self.conv_impl,
            dtype=self.dtype,
            kernel_init=self.kernel_init,
            name="conv",
        )(x)
        norm = Norm(self.norm, dtype=self.dtype, relu=self.relu, impl=self.conv_impl, name="norm")
        return norm(x, train, where)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2016).

    If the shape changes, the shortcut is a strided 1x1 convolution with normalisation. With
    ``pad_shortcut``, it is a strided slice with zero channels added on both sides, which has no
    parameters (option A of the paper). With ``is_block``, the output before the activation is sown;
    see ``layers.sow_block``.
    """

    features: int
    strides: int
    pad_shortcut: bool
    norm: str
    conv_impl: str
    dtype: Any
    is_block: bool = False

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Maps ``[B, H, W, C]`` to ``[B, H / strides, W / strides, features]``."""
        options = dict(norm=self.norm, conv_impl=self.conv_impl, dtype=self.dtype)
        first = ConvNorm(self.features, strides=self.strides, relu=True, name="conv0", **options)
        y = ConvNorm(self.features, name="conv1", **options)(first(x, train, where), train, where)
        if self.strides != 1 or x.shape[-1] != self.features:
            if self.pad_shortcut:
                missing = self.features - x.shape[-1]
                x = x[:, :: self.strides, :: self.strides]
                x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (missing // 2, missing - missing // 2)))
            else:
                shortcut = ConvNorm(
                    self.features, 1, strides=self.strides, name="shortcut", **options
                )
                x = shortcut(x, train, where)
        if self.is_block:
            sow_block(self, y + x)
        return nn.relu(y + x)


class ResNet(nn.Module):
    """Stages of basic blocks; every stage after the first halves the size of the image.

    Attributes:
        widths: number of channels of each stage; the last one is the feature size.
        blocks: number of blocks per stage.
        pad_shortcut: whether shortcuts have no parameters; see :class:`BasicBlock`.
        norm: ``"batch"``, ``"group"`` or ``"none"``.
        conv_impl: implementation of the convolutions.
        dtype: dtype of the computation.
        remat: whether to recompute the blocks in the backward pass.
    """

    widths: tuple[int, ...]
    blocks: int
    pad_shortcut: bool = False
    norm: str = "batch"
    conv_impl: str = "patches"
    dtype: Any = jnp.float32
    remat: bool = False

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Maps images ``[B, H, W, C]`` to features ``[B, widths[-1]]``."""
        block = nn.remat(BasicBlock, static_argnums=(2,)) if self.remat else BasicBlock
        options = dict(norm=self.norm, conv_impl=self.conv_impl, dtype=self.dtype)
        fused = not collects_blocks(self)
        x = ConvNorm(self.widths[0], relu=fused, name="stem", **options)(x, train, where)
        if not fused:
            sow_block(self, x)
            x = nn.relu(x)
        for stage, width in enumerate(self.widths):
            for n in range(self.blocks):
                strides = 2 if stage > 0 and n == 0 else 1
                x = block(
                    features=width,
                    strides=strides,
                    pad_shortcut=self.pad_shortcut,
                    is_block=n == self.blocks - 1,
                    name=f"stage{stage}_block{n}",
                    **options,
                )(x, train, where)
        return global_average_pool(x)


class InvertedResidual(nn.Module):
    """A 1x1 expansion, a 3x3 depthwise convolution and a 1x1 projection (Sandler et al., 2018).

    With stride 1, the input is added, through a 1x1 convolution if the number of channels differs,
    as in the network for CIFAR that the federated papers use.
    """

    features: int
    strides: int
    expansion: int
    norm: str
    conv_impl: str
    dtype: Any

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Maps ``[B, H, W, C]`` to ``[B, H / strides, W / strides, features]``."""
        options = dict(
            norm=self.norm, conv_impl=self.conv_impl, dtype=self.dtype, kernel_init=torch_uniform
        )
        width = self.expansion * x.shape[-1]
        y = ConvNorm(width, 1, relu=True, name="expand", **options)(x, train, where)
        depthwise = ConvNorm(
            width,
            strides=self.strides,
            feature_group_count=width,
            relu=True,
            name="depthwise",
            **options,
        )
        y = depthwise(y, train, where)
        y = ConvNorm(self.features, 1, name="project", **options)(y, train, where)
        if self.strides != 1:
            return y
        if x.shape[-1] != self.features:
            x = ConvNorm(self.features, 1, name="shortcut", **options)(x, train, where)
        return x + y


class MobileNetV2(nn.Module):
    """MobileNetV2 for 32x32 images, whose stem and first two stages have stride 1.

    Attributes:
        norm: ``"batch"``, ``"group"`` or ``"none"``.
        conv_impl: implementation of the convolutions.
        dtype: dtype of the computation.
        remat: whether to recompute the blocks in the backward pass.
        stages: ``(expansion, features, blocks, stride of the first block)``.
    """

    norm: str = "batch"
    conv_impl: str = "patches"
    dtype: Any = jnp.float32
    remat: bool = False
    stages: tuple[tuple[int, int, int, int], ...] = (
        (1, 16, 1, 1),
        (6, 24, 2, 1),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    @nn.compact
    def __call__(self, x: Array, train: bool, where: Array | None = None) -> Array:
        """Maps images ``[B, H, W, C]`` to features ``[B, 1280]``."""
        block = nn.remat(InvertedResidual, static_argnums=(2,)) if self.remat else InvertedResidual
        options = dict(norm=self.norm, conv_impl=self.conv_impl, dtype=self.dtype)
        outer = dict(kernel_init=torch_uniform, **options)
        x = ConvNorm(32, relu=True, name="stem", **outer)(x, train, where)
        for stage, (expansion, features, blocks, strides) in enumerate(self.stages):
            for n in range(blocks):
                x = block(
                    features=features,
                    strides=strides if n == 0 else 1,
                    expansion=expansion,
                    name=f"stage{stage}_block{n}",
                    **options,
                )(x, train, where)
            sow_block(self, x)
        x = ConvNorm(1280, 1, name="last", **outer)(x, train, where)
        sow_block(self, x)
        x = nn.relu(x)
        return global_average_pool(x)
