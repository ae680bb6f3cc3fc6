"""Counting the operations and bytes of traced programs (jaxprs) without compiled kernels."""

import math
from typing import Any, NamedTuple

import jax


class Count(NamedTuple):
    """Operations of a program: in one pass of its loops of unknown length, and elsewhere."""

    looped: float
    plain: float


def count(jaxpr: Any) -> Count:
    """Counts the operations of a traced program: all steps of a ``scan``, one of a ``while``."""
    looped = plain = 0.0
    for eqn in jaxpr.eqns:
        inner = [getattr(v, "jaxpr", v) for v in jax.tree.leaves(list(eqn.params.values()))]
        counts = [count(j) for j in inner if hasattr(j, "eqns")]
        name = eqn.primitive.name
        if name == "while":
            looped += sum(c.looped + c.plain for c in counts)
        elif name == "cond":
            looped += max((c.looped for c in counts), default=0.0)
            plain += max((c.plain for c in counts), default=0.0)
        elif counts:
            times = eqn.params.get("length", 1) if name == "scan" else 1
            looped += times * sum(c.looped for c in counts)
            plain += times * sum(c.plain for c in counts)
        else:
            plain += _operations(name, eqn)
    return Count(looped, plain)


def _operations(name: str, eqn: Any) -> float:
    out = sum(getattr(v.aval, "size", 0) for v in eqn.outvars)
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2.0 * out * math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * out * math.prod(kernel) / features
    return float(out)


def intermediate_bytes(jaxpr: Any) -> int:
    """Returns the bytes of all intermediate values, which a backward pass may have to store."""
    total = 0
    for eqn in jaxpr.eqns:
        inner = [getattr(v, "jaxpr", v) for v in jax.tree.leaves(list(eqn.params.values()))]
        below = [j for j in inner if hasattr(j, "eqns")]
        if below:
            total += sum(intermediate_bytes(j) for j in below)
        else:
            total += sum(getattr(v.aval, "size", 0) * 4 for v in eqn.outvars)
    return total
