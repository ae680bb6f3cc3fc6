"""Data-flow analysis of traced programs: which inputs they read, and which they return unchanged.

``reads`` traverses a jaxpr backwards, from the wanted outputs to the inputs on which they depend.
``results`` traverses it forwards and finds outputs that are always zero or always equal to an
input. Both analyse loops, branches and calls. They are conservative: they may report that an unread
input is read or that an unchanged output is new, but never the opposite.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

Shape = tuple[tuple[int, ...], str]  # Shape and dtype.
Reads = frozenset[Shape]
NOTHING: Reads = frozenset()

_SLICES = ("dynamic_slice", "gather", "slice")
_SHAPE_ONLY = ("broadcast_in_dim", "copy", "reshape", "squeeze", "stop_gradient", "transpose")
_OF_ZERO = (*_SHAPE_ONLY, "convert_element_type", "neg", "reduce_sum", "cumsum")


@dataclasses.dataclass(frozen=True)
class Same:
    """A value that equals the input with this index."""

    number: int


@dataclasses.dataclass(frozen=True)
class Constant:
    """An array whose elements all equal this number."""

    number: float


@dataclasses.dataclass(frozen=True)
class WeightedSum:
    """A weighted sum over clients of a value that is equal on all of them."""

    value: Any


ZERO = Constant(0.0)
Value = Same | Constant | WeightedSum | None


def num_bytes(shape: Shape) -> int:
    """Returns the size of an array in bytes."""
    return math.prod(shape[0]) * jnp.dtype(shape[1]).itemsize


def reads(jaxpr: Any, wanted: Sequence[bool]) -> list[Reads]:
    """Returns the parts of every input on which the wanted outputs depend.

    Args:
        jaxpr: the program, without its constants.
        wanted: one flag per output.

    Returns:
        For every input, a set that is empty or contains its own shape or the shapes of the slices
        that are read.
    """
    live: dict[Any, Reads] = {}

    def mark(var: Any, parts: Reads) -> None:
        if parts and not hasattr(var, "val"):
            live[var] = live.get(var, NOTHING) | parts

    for var, flag in zip(jaxpr.outvars, wanted, strict=True):
        mark(var, _whole(var) if flag else NOTHING)
    for eqn in reversed(jaxpr.eqns):
        used = [bool(live.get(var)) for var in eqn.outvars]
        if not any(used):
            continue
        for var, parts in zip(eqn.invars, _reads_of(eqn, used), strict=True):
            mark(var, parts)
    return [live.get(var, NOTHING) for var in jaxpr.invars]


def results(jaxpr: Any, inputs: Sequence[Value], constants: Sequence[Any] = ()) -> list[Value]:
    """Returns what is known about every output, given what is known about the inputs."""
    known: dict[Any, Value] = dict(zip(jaxpr.constvars, map(_constant, constants), strict=False))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def look(var: Any) -> Value:
        return _constant(var.val) if hasattr(var, "val") else known.get(var)

    for eqn in jaxpr.eqns:
        found = _results_of(eqn, [look(var) for var in eqn.invars])
        known |= dict(zip(eqn.outvars, found, strict=True))
    return [look(var) for var in jaxpr.outvars]


def sizes(jaxpr: Any, inputs: Sequence[int] | None = None) -> list[int]:
    """Returns the bytes that are needed to send every output.

    This is the size of the array, or less if the array only repeats or multiplies smaller ones. For
    example, the outer product of a client's model and a one-hot vector of its cluster costs as much
    as the model and the vector.

    Args:
        jaxpr: the program.
        inputs: bytes needed for every input; their sizes by default.
    """
    found = dict(zip(jaxpr.invars, inputs or map(_own_size, jaxpr.invars), strict=True))

    def look(var: Any) -> int:
        return 0 if hasattr(var, "val") else found.get(var, _own_size(var))

    for eqn in jaxpr.eqns:
        needed = [look(var) for var in eqn.invars]
        inner = _inner(eqn)
        if inner is not None and eqn.primitive.name not in ("scan", "while"):
            found |= dict(zip(eqn.outvars, sizes(inner, needed), strict=True))
        elif eqn.primitive.name in (*_SHAPE_ONLY, "convert_element_type", "mul"):
            found[eqn.outvars[0]] = min(sum(needed), _own_size(eqn.outvars[0]))
        elif eqn.primitive.name == "select_n":
            found[eqn.outvars[0]] = min(sum(needed[1:]), _own_size(eqn.outvars[0]))
    return [look(var) for var in jaxpr.outvars]


def _own_size(var: Any) -> int:
    size = getattr(var.aval.dtype, "itemsize", 0)
    return math.prod(var.aval.shape) * size


def _whole(var: Any) -> Reads:
    return frozenset([(tuple(var.aval.shape), str(var.aval.dtype))])


def _reads_of(eqn: Any, used: Sequence[bool]) -> list[Reads]:
    """Returns the parts of an equation's inputs on which its used outputs depend."""
    name, params = eqn.primitive.name, eqn.params
    whole = [_whole(var) for var in eqn.invars]
    if name in _SLICES:
        return [_whole(eqn.outvars[0]), *whole[1:]]
    if name == "cond":
        each = [reads(branch.jaxpr, used) for branch in params["branches"]]
        return [whole[0], *(frozenset().union(*parts) for parts in zip(*each, strict=True))]
    if name == "while":
        return _reads_of_while(params, used)
    if name == "scan":
        return _reads_of_scan(eqn, used)
    inner = _inner(eqn)
    return whole if inner is None else reads(inner, used)


def _reads_of_while(params: Any, used: Sequence[bool]) -> list[Reads]:
    cond, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    of_cond, of_body = params["cond_nconsts"], params["body_nconsts"]
    test = reads(cond, [True])
    carried = [a or bool(b) for a, b in zip(used, test[of_cond:], strict=True)]
    while True:
        step = reads(body, carried)
        grown = [a or bool(b) for a, b in zip(carried, step[of_body:], strict=True)]
        if grown == carried:
            break
        carried = grown
    initial = [
        _whole(var) if flag else NOTHING for var, flag in zip(body.outvars, carried, strict=True)
    ]
    return [*test[:of_cond], *step[:of_body], *initial]


def _reads_of_scan(eqn: Any, used: Sequence[bool]) -> list[Reads]:
    body, params = eqn.params["jaxpr"].jaxpr, eqn.params
    constants, size = params["num_consts"], params["num_carry"]
    carried = list(used[:size])
    while True:
        step = reads(body, [*carried, *used[size:]])
        grown = [
            a or bool(b) for a, b in zip(carried, step[constants : constants + size], strict=True)
        ]
        if grown == carried:
            break
        carried = grown
    outer = [
        _whole(var) if parts else NOTHING
        for var, parts in zip(eqn.invars[constants:], step[constants:], strict=True)
    ]
    return [*step[:constants], *outer]


def _inner(eqn: Any) -> Any:
    """Returns the program that an equation calls with the same inputs and outputs, or None."""
    for value in eqn.params.values():
        jaxpr = getattr(value, "jaxpr", value)
        if not hasattr(jaxpr, "eqns"):
            continue
        if (len(jaxpr.invars), len(jaxpr.outvars)) == (len(eqn.invars), len(eqn.outvars)):
            return jaxpr
    return None


def _results_of(eqn: Any, inputs: list[Value]) -> list[Value]:
    name, params = eqn.primitive.name, eqn.params
    unknown: list[Value] = [None] * len(eqn.outvars)
    if name == "cond":
        each = [results(b.jaxpr, inputs[1:], b.consts) for b in params["branches"]]
        return [_agreed(values) for values in zip(*each, strict=True)]
    if name == "while":
        body, of_body = params["body_jaxpr"], params["body_nconsts"]
        start = params["cond_nconsts"]
        return _loop(body, inputs[start : start + of_body], inputs[start + of_body :], [])
    if name == "scan":
        constants, size = params["num_consts"], params["num_carry"]
        carry, rows = inputs[constants : constants + size], inputs[constants + size :]
        each_row: list[Value] = [row if isinstance(row, Constant) else None for row in rows]
        done = _loop(params["jaxpr"], inputs[:constants], carry, each_row)
        return [*done, *unknown[size:]]
    inner = _inner(eqn)
    if inner is not None:
        closed = next(v for v in params.values() if getattr(v, "jaxpr", v) is inner)
        return results(inner, inputs, getattr(closed, "consts", ()))
    if len(eqn.outvars) > 1:
        return unknown
    shape = eqn.outvars[0].aval.shape
    kept = [
        value if var.aval.shape == shape else _shapeless(value)
        for value, var in zip(inputs, eqn.invars, strict=True)
    ]
    return [_arithmetic(name, inputs, kept)]


def _loop(body: Any, constants: list[Value], carry: list[Value], rows: list[Value]) -> list[Value]:
    """Returns what is known about a carry after any number of iterations."""
    while True:
        after = results(body.jaxpr, [*constants, *carry, *rows], body.consts)
        kept = [a if a == b else None for a, b in zip(carry, after, strict=False)]
        if kept == carry:
            return carry
        carry = kept


def _arithmetic(name: str, inputs: list[Value], kept: list[Value]) -> Value:
    """Returns the value of an operation; ``kept`` has the inputs that are not broadcast."""
    if name in _SHAPE_ONLY and isinstance(inputs[0], Constant):
        return inputs[0]
    if name in _OF_ZERO and inputs[0] == ZERO:
        return ZERO
    if name in ("copy", "stop_gradient"):
        return kept[0]
    if name == "mul" and ZERO in inputs:
        return ZERO
    if name == "div":
        if inputs[0] == ZERO:
            return ZERO
        return kept[0].value if isinstance(kept[0], WeightedSum) else None
    if name in ("add", "add_any") and ZERO in inputs:
        return kept[1] if inputs[0] == ZERO else kept[0]
    if name == "sub" and inputs[0] is not None:
        return ZERO if inputs[0] == inputs[1] else kept[0] if inputs[1] == ZERO else None
    if name == "sub" and inputs[1] == ZERO:
        return kept[0]
    if name == "select_n":
        if isinstance(inputs[0], Constant):
            return kept[1 + int(inputs[0].number)]
        return _agreed(kept[1:])
    return None


def _agreed(values: Sequence[Value]) -> Value:
    return values[0] if all(value == values[0] for value in values) else None


def _shapeless(value: Value) -> Value:
    """Returns what is known about a value after broadcasting."""
    return value if isinstance(value, Constant) else None


def _constant(value: Any) -> Value:
    """Returns the value of a scalar or of an array of equal numbers, or None."""
    try:
        first = float(value.flat[0]) if getattr(value, "size", 1) > 1 else float(value)
        same = getattr(value, "size", 1) == 1 or bool((value == first).all())
    except (TypeError, ValueError, AttributeError, IndexError):
        return None
    return Constant(first) if same and first == first else None
