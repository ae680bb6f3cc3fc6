"""Models whose classifier is a fixed matrix: FedETF, FedNH and FedGELA.

The fixed matrix is ``params["head"]["kernel"]``, so that it is stored, sent and evaluated like any
other parameter. A method that uses one of these models must not train it (see ``body_mask``).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_skew.losses import cosine_logits, simplex_etf
from fedjax_skew.methods.base import PyTree
from fedjax_skew.models.functional import Model, Outputs
from fedjax_skew.models.layers import torch_uniform
from fedjax_skew.models.norm import Norm

_OWN = ("head", "head_projection", "head_scale", "norm_head")


def random_etf(key: jax.Array, width: int, num_classes: int, field: str) -> jax.Array:
    """Returns a simplex equiangular tight frame ``[width, C]``; errors call the width ``field``."""
    if width < num_classes or num_classes < 2:
        raise ValueError(
            f"{field}={width} must be at least the number of classes, {num_classes}, which must be "
            "at least 2, because the frame has one direction per class."
        )
    return simplex_etf(jax.random.uniform(key, (width, num_classes)))


def cosine_model(
    model: Model,
    make_head: Callable[[jax.Array, int, int], jax.Array],
    *,
    scale: float,
    width: int = 0,
    project: bool = False,
) -> Model:
    """Returns a model with logits ``s u(z) M`` for a fixed ``M`` and a trained scalar ``s``.

    Args:
        model: the network, whose own head is not used.
        make_head: ``(key, features, classes) -> M [features, classes]``.
        scale: initial value of ``s``.
        width: size of the projected features; 0 stands for the number of classes.
        project: if True, ``z`` is a trained linear map of the network's features; if False, ``z``
            are the features.
    """

    def init(key, features, classes):
        neck_key, head_key = jax.random.split(key)
        params = {"head_scale": jnp.float32(scale)}
        if project:
            size = width or classes
            kernel = torch_uniform(neck_key, (features, size), jnp.float32)
            params["head_projection"] = {"kernel": kernel, "bias": jnp.zeros(size)}
            features = size
        params["head"] = {"kernel": make_head(head_key, features, classes)}
        return params, {}

    def apply(params, stats, features, train, where):
        if project:
            features = (
                features @ params["head_projection"]["kernel"] + params["head_projection"]["bias"]
            )
        logits = cosine_logits(features, params["head"]["kernel"], scale=params["head_scale"])
        return Outputs(logits, features), stats

    return _replace_head(model, init, apply)


def normalized_model(
    model: Model, make_head: Callable[[jax.Array, int, int], jax.Array], *, temperature: float
) -> Model:
    """Returns a model with logits ``z M / T`` for a fixed ``M`` and batch-normalised ``z``."""
    norm = Norm("batch", name="norm_head")

    def init(key, features, classes):
        made = norm.init(key, jnp.zeros((1, features)), False)
        params = {"norm_head": made["params"]}
        params["head"] = {"kernel": make_head(key, features, classes)}
        return params, {"norm_head": made["batch_stats"]}

    def apply(params, stats, features, train, where):
        variables = {"params": params["norm_head"], "batch_stats": stats["norm_head"]}
        features, new = norm.apply(variables, features, train, where, mutable=["batch_stats"])
        logits = features @ params["head"]["kernel"] / temperature
        return Outputs(logits, features), {"norm_head": new["batch_stats"]}

    return _replace_head(model, init, apply)


def _replace_head(model: Model, init_head: Callable, apply_head: Callable) -> Model:
    """Returns the model with its head replaced by another one.

    Args:
        model: the network.
        init_head: ``(key, features, classes) -> (params, stats)``, with entries among ``_OWN``.
        apply_head: ``(params, stats, features, train, where) -> (Outputs, stats)``.
    """

    def body(tree: PyTree) -> PyTree:
        return {name: value for name, value in tree.items() if name not in _OWN}

    def init(key, x):
        params, stats = model.init(key, x)
        shape = params["head"]["kernel"].shape
        own, own_stats = init_head(jax.random.fold_in(key, 1), *shape)
        return {**body(params), **own}, {**stats, **own_stats}

    def apply(params, stats, x, *, train=False, where=None):
        features, body_stats = model.features(
            body(params), body(stats), x, train=train, where=where
        )
        own_stats = {name: value for name, value in stats.items() if name in _OWN}
        outputs, own_stats = apply_head(params, own_stats, features, train, where)
        return outputs, {**body_stats, **own_stats}

    def features(params, stats, x, *, train=False, where=None):
        outputs, stats = apply(params, stats, x, train=train, where=where)
        return outputs.features, stats

    return Model(init, apply, features)
