"""Models that return logits and features, and whose classifier is always named ``head``::

    model = build("resnet8", num_classes=10)
    variables = model.init(key, images, train=False)
    outputs, updates = model.apply(variables, images, train=True, where=mask,
                                   mutable=["batch_stats"])

Kernels are initialised as by PyTorch's defaults (uniform in +-1/sqrt(fan_in)), which the published
networks and their learning rates assume, with two exceptions: convolutions of the ResNets and VGG-9
use He's normal initialisation by fan-out, and ``pfl_cnn`` uses Glorot's uniform initialisation,
both as published. Biases start at zero. The head of the logistic regression is initialised like any
other.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_skew.errors import unknown
from fedjax_skew.models.conv import CONV_IMPLS
from fedjax_skew.models.functional import Outputs
from fedjax_skew.models.layers import he_fan_out, torch_uniform
from fedjax_skew.models.norm import NORMS
from fedjax_skew.models.plain import Plain
from fedjax_skew.models.residual import MobileNetV2, ResNet

Array = jax.Array

__all__ = ["Outputs", "build", "label", "names", "norm_mask"]


class Classifier(nn.Module):
    """A backbone, an optional projection (Dense, ReLU, Dense) and a linear head.

    Attributes:
        backbone: maps ``(x, train, where)`` to features.
        num_classes: number of logits.
        projection: output size of the projection, or 0 for none.
        head_bias: whether the head has a bias.
        dtype: dtype of the computation before the head, which is float32.
        head_init: initialiser of the kernels of the projection and of the head.
    """

    backbone: nn.Module
    num_classes: int
    projection: int = 0
    head_bias: bool = True
    dtype: Any = jnp.float32
    head_init: Callable[..., Array] = torch_uniform

    @nn.compact
    def __call__(self, x: Array, *, train: bool, where: Array | None = None) -> Outputs:
        """Computes logits and features.

        Args:
            x: float inputs ``[B, ...]``.
            train: whether to normalise with the statistics of the batch and to update the running
                ones.
            where: boolean mask ``[B]`` of the valid rows; all of them if None.

        Returns:
            The logits, and the features that are the input of the head.
        """
        features = self.backbone(x.astype(self.dtype), train, where)
        if self.projection:
            features = _Projection(self.projection, self.dtype, self.head_init, name="projection")(
                features
            )
        features = features.astype(jnp.float32)
        head = nn.Dense(
            self.num_classes, use_bias=self.head_bias, kernel_init=self.head_init, name="head"
        )
        return Outputs(head(features), features)


class _Projection(nn.Module):
    features: int
    dtype: Any
    kernel_init: Callable[..., Array]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        options = dict(dtype=self.dtype, kernel_init=self.kernel_init)
        x = nn.relu(nn.Dense(x.shape[-1], name="dense0", **options)(x))
        return nn.Dense(self.features, name="dense1", **options)(x)


class _Spec(NamedTuple):
    about: str
    module: type[nn.Module]
    options: dict[str, Any]
    head_init: Callable[..., Array] = torch_uniform
    label: str = ""  # The name in tables and figures.


_glorot = nn.initializers.glorot_uniform()

_MODELS: dict[str, _Spec] = {
    "logistic": _Spec(
        "logistic regression on the flattened input (features = input)",
        Plain,
        {},
        label="logistic regression",
    ),
    "mlp": _Spec(
        "two hidden layers of 200 (features 200)", Plain, {"dense": (200, 200)}, label="MLP"
    ),
    "fedavg_cnn": _Spec(
        "FedAvg's CNN: two 5x5 convolutions 32, 64 with pooling, dense 512 (features 512)",
        Plain,
        {
            "convs": ((32, True), (64, True)),
            "dense": (512,),
            "kernel_size": 5,
            "padding": "SAME",
        },
        label="FedAvg CNN",
    ),
    "simple_cnn": _Spec(
        "LeNet-like CNN of NIID-Bench: 5x5 convolutions 6, 16, dense 120, 84 (features 84)",
        Plain,
        {"convs": ((6, True), (16, True)), "dense": (120, 84), "kernel_size": 5},
        label="simple CNN",
    ),
    "tfcnn": _Spec(
        "TensorFlow tutorial CNN: 3x3 convolutions 32, 64, 64, dense 64 (features 64)",
        Plain,
        {"convs": ((32, True), (64, True), (64, False)), "dense": (64,)},
        label="TFCNN",
    ),
    "pfl_cnn": _Spec(
        "pfl-research's CIFAR-10 CNN: 3x3 convolutions 32, 64, pooling, dense 128, here without "
        "dropout (features 128)",
        Plain,
        {
            "convs": ((32, False), (64, True)),
            "dense": (128,),
            "conv_init": _glorot,
            "dense_init": _glorot,
        },
        _glorot,
        label="pfl-research CNN",
    ),
    "fedlc_cnn": _Spec(
        "FedLC's CIFAR CNN: three 3x3 convolutions of 128, pooling after two (features 2048)",
        Plain,
        {"convs": ((128, True), (128, True), (128, False))},
        label="FedLC CNN",
    ),
    "fedlc_mnist_cnn": _Spec(
        "FedLC's MNIST CNN: 5x5 convolutions 16, 32 with normalisation, pooling (features 1568)",
        Plain,
        {"convs": ((16, True), (32, True)), "kernel_size": 5, "padding": "SAME", "norm": "batch"},
        label="FedLC MNIST CNN",
    ),
    "vgg9": _Spec(
        "VGG-9: six 3x3 convolutions 32 to 256, dense 512, 512 (features 512)",
        Plain,
        {
            "convs": tuple(zip((32, 64, 128, 128, 256, 256), (False, True) * 3, strict=True)),
            "dense": (512, 512),
            "padding": "SAME",
            "conv_init": he_fan_out,
        },
        label="VGG-9",
    ),
    "resnet8_w16": _Spec(
        "ResNet-8 of widths 16, 32, 64 (features 64)",
        ResNet,
        {"widths": (16, 32, 64), "blocks": 1},
        label="ResNet-8 (width 16)",
    ),
    "resnet8": _Spec(
        "ResNet-8 of widths 64, 128, 256 (features 256)",
        ResNet,
        {"widths": (64, 128, 256), "blocks": 1},
        label="ResNet-8",
    ),
    "resnet18": _Spec(
        "ResNet-18 with the stem for small images (features 512)",
        ResNet,
        {"widths": (64, 128, 256, 512), "blocks": 2},
        label="ResNet-18",
    ),
    "resnet32": _Spec(
        "CIFAR ResNet-32 of widths 16, 32, 64, parameter-free shortcuts (features 64)",
        ResNet,
        {"widths": (16, 32, 64), "blocks": 5, "pad_shortcut": True},
        label="ResNet-32",
    ),
    "mobilenet_v2": _Spec(
        "MobileNetV2 with strides for small images (features 1280)",
        MobileNetV2,
        {},
        label="MobileNetV2",
    ),
}


def names() -> dict[str, str]:
    """Returns every model name with a one-line description."""
    return {name: spec.about for name, spec in _MODELS.items()}


def label(name: str) -> str:
    """Returns the label of a model, such as ``"ResNet-8"``; unknown names are not changed."""
    return (_MODELS[name].label if name in _MODELS else "") or name


def build(
    name: str,
    num_classes: int,
    *,
    projection: int = 0,
    head_bias: bool = True,
    norm: str = "batch",
    conv_impl: str = "patches",
    dtype: Any = jnp.float32,
    remat: bool = False,
) -> nn.Module:
    """Builds a model.

    Args:
        name: one of :func:`names`.
        num_classes: number of logits.
        projection: if positive, Dense(D), ReLU and Dense(projection) are added before the head.
        head_bias: whether the head has a bias.
        norm: ``"batch"``, ``"group"`` or ``"none"``. Networks published without normalisation
            (most of the plain CNNs) ignore it.
        conv_impl: implementation of convolutions: ``"native"`` uses compiled kernels of this
            package, which are the fastest on CPUs, and ``"patches"`` where it has none;
            ``"patches"`` uses slices and matrix products; ``"xla"`` uses XLA's own operation;
            ``"grouped"`` uses the same operation with gradients that are fast on accelerators when
            clients are stacked.
        dtype: dtype of the computation, such as ``jnp.bfloat16``. Parameters, features and logits
            are always float32.
        remat: whether to recompute activations of blocks in the backward pass to save memory.

    Returns:
        A module ``(x, *, train, where=None) -> Outputs``.
    """
    if name not in _MODELS:
        raise unknown("model", name, _MODELS)
    if norm not in NORMS:
        raise unknown("norm", norm, NORMS)
    if conv_impl not in CONV_IMPLS:
        raise unknown("conv_impl", conv_impl, CONV_IMPLS)
    if num_classes < 1:
        raise ValueError(f"num_classes={num_classes} must be at least 1.")
    if projection < 0:
        raise ValueError(f"projection={projection} must be 0 (none) or a positive size.")
    spec = _MODELS[name]
    options = dict(spec.options, conv_impl=conv_impl, dtype=dtype, remat=remat)
    if spec.module is not Plain or "norm" in spec.options:
        options["norm"] = norm
    return Classifier(
        backbone=spec.module(**options),
        num_classes=num_classes,
        projection=projection,
        head_bias=head_bias,
        dtype=dtype,
        head_init=spec.head_init,
    )


def norm_mask(params: Any) -> Any:
    """Returns a mask of the parameters of normalisation layers.

    Args:
        params: the ``params`` collection of a model, or any tree of the same structure.

    Returns:
        A tree of the same structure with True for leaves under a layer named ``norm...``.
    """

    def is_norm(path: tuple[Any, ...], _: Any) -> bool:
        return any(str(getattr(key, "key", key)).startswith("norm") for key in path)

    return jax.tree_util.tree_map_with_path(is_norm, params)
