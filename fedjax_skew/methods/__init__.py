"""Methods by name. A new method is one module here and one line in ``REGISTRY``.

A builder is a function with keyword-only hyper-parameters that returns a ``Method``; the defaults of
its signature are the defaults of ``config.hparams.<method>``.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fedjax_skew.errors import unknown
from fedjax_skew.methods.base import Method
from fedjax_skew.methods.composition import compose
from fedjax_skew.methods.fedavg import fedavg

REGISTRY: dict[str, Callable[..., Method]] = {
    "fedavg": fedavg,
}


def names() -> dict[str, str]:
    """All methods with the first line of their module's description."""
    return {
        name: (inspect.getdoc(builder) or "").split("\n")[0] for name, builder in REGISTRY.items()
    }


def defaults(name: str) -> dict[str, Any]:
    """Default hyper-parameters of a method."""
    parameters = inspect.signature(REGISTRY[name]).parameters.values()
    return {p.name: p.default for p in parameters}


def build(name: str, hparams: Mapping[str, Mapping[str, Any]] | None = None) -> Method:
    """Builds a method or a composition such as ``fedlc+scaffold``.

    Args:
        name: registered names joined by ``+``.
        hparams: hyper-parameters by method name; missing ones take their defaults.
    """
    parts = []
    for part in name.split("+"):
        if part not in REGISTRY:
            raise unknown("method", part, REGISTRY)
        given = dict((hparams or {}).get(part, {}))
        for field in given:
            if field not in defaults(part):
                raise unknown(f"hparams.{part}", field, defaults(part))
        parts.append(REGISTRY[part](**given))
    return compose(parts)


__all__ = ["REGISTRY", "Method", "build", "compose", "defaults", "names"]
