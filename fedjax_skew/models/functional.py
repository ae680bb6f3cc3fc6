"""A model as pure functions of explicit variables.

Training and evaluation only use this interface, so that a method can replace the network by another
predictor, such as a concatenation of encoders or an ensemble.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

PyTree = Any


class Outputs(NamedTuple):
    """The result of a forward pass.

    Attributes:
        logits: ``[B, C]``.
        features: ``[B, D]``, the input of the head.
        blocks: outputs ``[B, D_i]`` of the network's stages before their activation, averaged over
            pixels, in no particular order; empty unless ``from_module`` collects them.
    """

    logits: jax.Array
    features: jax.Array
    blocks: tuple[jax.Array, ...] = ()


@dataclasses.dataclass(frozen=True)
class Model:
    """Pure functions of a classifier.

    Attributes:
        init: ``(key, x [B, ...]) -> (params, stats)``; ``params["head"]`` is the classifier,
            ``stats`` are the running statistics of normalisation layers (``{}`` without any).
        apply: ``(params, stats, x, *, train=False, where=None) -> (Outputs, stats)``; ``x`` is a
            batch as stored (uint8 images or floats), and ``where [B]`` is True for valid rows.
        features: like ``apply``, but without the head: returns ``(features, stats)``, and
            ``params`` needs no entry ``head``.
    """

    init: Callable[..., tuple[PyTree, PyTree]]
    apply: Callable[..., tuple[Outputs, PyTree]]
    features: Callable[..., tuple[jax.Array, PyTree]]


def head(params: PyTree, features: jax.Array) -> jax.Array:
    """Returns the logits ``[..., C]`` of the classifier for features ``[..., D]``."""
    logits = features @ params["head"]["kernel"]
    return logits + params["head"]["bias"] if "bias" in params["head"] else logits


def from_module(
    module: nn.Module, normalize: Callable[[jax.Array], jax.Array], *, blocks: bool = False
) -> Model:
    """Wraps a flax module.

    Args:
        module: a module whose call ``(x, *, train, where)`` returns ``(logits, features)`` and
            whose last layer is named ``head``.
        normalize: maps a stored batch to the module's input.
        blocks: whether to collect the values that the module sows into ``blocks``.
    """

    def init(key, x):
        variables = module.init(key, normalize(x), train=False)
        return variables["params"], variables.get("batch_stats", {})

    def apply(params, stats, x, *, train=False, where=None):
        variables = {"params": params, **({"batch_stats": stats} if stats else {})}
        mutable = ["batch_stats"] * bool(train and stats) + ["blocks"] * blocks
        if not mutable:
            return Outputs(*module.apply(variables, normalize(x), train=train, where=where)), stats
        outputs, new = module.apply(
            variables, normalize(x), train=train, where=where, mutable=mutable
        )
        made = tuple(jax.tree.leaves(new.get("blocks", ())))
        return Outputs(*outputs[:2], made), new.get("batch_stats", stats)

    def features(params, stats, x, *, train=False, where=None):
        with nn.intercept_methods(_skip_head):
            outputs, stats = apply(params, stats, x, train=train, where=where)
        return outputs.features, stats

    return Model(init, apply, features)


def _skip_head(call, args, kwargs, context):
    """Makes the layer ``head`` return its input."""
    if context.module.name == "head" and context.method_name == "__call__":
        return args[0]
    return call(*args, **kwargs)


def normalizer(
    mean: tuple[float, ...], std: tuple[float, ...], dtype: Any = jnp.float32
) -> Callable[[jax.Array], jax.Array]:
    """Returns the map from stored samples to model input.

    It is ``(x / 255 - mean) / std`` for uint8 samples, and a cast to ``dtype`` for others.
    """

    def normalize(x: jax.Array) -> jax.Array:
        if x.dtype != jnp.uint8:
            return x.astype(dtype)
        scale = 1.0 / (255.0 * jnp.asarray(std, jnp.float32))
        shift = jnp.asarray(mean, jnp.float32) / jnp.asarray(std, jnp.float32)
        return (x.astype(jnp.float32) * scale - shift).astype(dtype)

    return normalize
