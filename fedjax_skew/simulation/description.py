"""The description of a run as a configuration, including objects that replace its fields."""

import dataclasses
import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any

import flax.linen as nn

from fedjax_skew.methods import Method
from fedjax_skew.simulation.columns import plain
from fedjax_skew.simulation.problem import Problem

GIVEN = "given"  # The description of an object that has no name.


def describe(problem: Problem) -> dict[str, Any]:
    """Returns all fields of the configuration, with the names of the objects that replace them."""
    values, given = problem.config.to_dict(), problem.given
    if given.method is not None:
        values["method"] = given.method.name
        values["hparams"] = method_hparams(given.method)
    if given.dataset is not None:
        values["dataset"] |= {"name": given.dataset.name, "data_dir": "", "path": ""}
    if given.partition is not None:
        values |= {"partition": GIVEN, "num_clients": problem.info.num_clients}
    if given.module is not None:
        values["model"] = module_name(given.module)
    if given.optimizer is not None:
        values["optimizer"] = GIVEN
    if given.params is not None:
        values["params"] = GIVEN
    return plain(values)


def method_hparams(method: Method) -> dict[str, dict[str, Any]]:
    """Returns the hyper-parameters of a method object, by the name of the method.

    These are the plain values that its functions bind or close over.
    """
    found: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()

    def visit(owner: str, value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, Method):
            found.setdefault(value.name, {})
            for field in dataclasses.fields(value):
                visit(value.name, getattr(value, field.name))
        elif isinstance(value, functools.partial):
            visit(owner, value.func)
            bound = inspect.signature(value.func).bind_partial(*value.args, **value.keywords)
            visit(owner, bound.arguments)
        elif isinstance(value, types.FunctionType):
            cells = inspect.getclosurevars(value).nonlocals
            take(owner, cells)
            for part in cells.values():
                visit(owner, part)
        elif isinstance(value, (list, tuple)):
            for part in value:
                visit(owner, part)
        elif isinstance(value, dict):
            take(owner, value)
            for part in value.values():
                visit(owner, part)

    def take(owner: str, values: Mapping[str, Any]) -> None:
        simple = {k: v for k, v in values.items() if isinstance(v, (bool, int, float, str))}
        found[owner] = simple | found.setdefault(owner, {})

    visit(method.name, method)
    parts = {name: values for name, values in found.items() if name != method.name}
    own = found[method.name]
    return parts if parts and not own else {method.name: own, **parts}


def module_name(module: nn.Module) -> str:
    """Returns a flax module as ``Name(field=value)``."""
    fields = {
        field.name: getattr(module, field.name)
        for field in dataclasses.fields(module)
        if field.name not in ("parent", "name")
    }
    words = ", ".join(f"{name}={_short(value)}" for name, value in fields.items())
    return f"{type(module).__name__}({words})"


def _short(value: Any) -> str:
    """Returns a short text for a value; for functions and types, it is their name."""
    return getattr(value, "__name__", None) or repr(value)[:40]
