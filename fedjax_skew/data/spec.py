"""Textual specifications: ``name``, ``name(0.1)``, ``name(key=value, ...)``.

A specification calls a function whose keyword-only parameters have rules of
:mod:`fedjax_skew.checks` in their annotations::

    def dirichlet(pool, rng, *, beta: Annotated[float, above(0), also("alpha")], balance: bool):
        ...

Positional values are assigned to the parameters in the order of their declaration. Values may be
quoted if they contain commas or brackets. A parameter whose name ends in an underscore because it
would be a Python keyword (``if_``) is written without the underscore. Invalid text raises a
``ValueError`` whose message is one sentence.
"""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from fedjax_skew import checks, errors

_CALL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_KEY = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)

Builder = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Alias:
    """Alternative names of a parameter, as part of its annotation."""

    names: tuple[str, ...]


def also(*names: str) -> Alias:
    """Returns an annotation with alternative names of a parameter."""
    return Alias(names)


@dataclasses.dataclass(frozen=True)
class Call:
    """A parsed name with its arguments as text."""

    name: str
    positional: tuple[str, ...]
    keyed: tuple[tuple[str, str], ...]


def split(text: str, separator: str, field: str) -> list[str]:
    """Splits a text at every separator that is outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                break
        elif char == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if depth or quote:
        raise ValueError(f"{field}={text!r} has an unclosed or unopened bracket or quote.")
    return [*parts, text[start:]]


def parse(text: str, field: str) -> Call:
    """Parses a single ``name(arguments)``."""
    match = _CALL.fullmatch(text)
    if not match:
        raise ValueError(f"{field}={text!r} is not of the form name or name(key=value, ...).")
    name, inside = match.group(1), match.group(2)
    positional: list[str] = []
    keyed: list[tuple[str, str]] = []
    if inside is not None and inside.strip():
        for part in split(inside, ",", field):
            pair = _KEY.fullmatch(part)
            if pair:
                keyed.append((pair.group(1), _unquoted(pair.group(2))))
            elif keyed:
                raise ValueError(
                    f"{field}={text!r} has the positional value {part.strip()!r} after a "
                    "key=value pair."
                )
            else:
                positional.append(_unquoted(part))
    return Call(name, tuple(positional), tuple(keyed))


def bind(call: Call, builder: Builder, field: str) -> dict[str, Any]:
    """Returns the validated keyword arguments with which a specification calls a function.

    Args:
        call: the parsed specification.
        builder: a function whose keyword-only parameters have rules.
        field: the name of the field in error messages.
    """
    defaults = checks.defaults(builder)
    if len(call.positional) > len(defaults):
        raise ValueError(
            f"{field}: {call.name} takes at most {len(defaults)} arguments "
            f"({', '.join(map(_written, defaults)) or 'none'}) but {len(call.positional)} are "
            "given."
        )
    given = dict(zip(defaults, call.positional, strict=False))
    by_name = _spellings(builder)
    for key, text in call.keyed:
        if key not in by_name:
            raise errors.unknown(f"{field}: argument of {call.name}", key, by_name)
        name = by_name[key]
        if name in given:
            raise ValueError(f"{field}: {call.name} has {_written(name)} twice.")
        given[name] = text
    rules, values = checks.rules(builder), {}
    for name, default in defaults.items():
        if name in given:
            where = f"{field}: {call.name}.{_written(name)}"
            values[name] = rules[name].parse(where, given[name])
        elif default is checks.REQUIRED:
            needed = {n: rules[n].example for n, d in defaults.items() if d is checks.REQUIRED}
            example = ", ".join(f"{_written(n)}={value}" for n, value in needed.items())
            raise ValueError(
                f"{field}: {call.name} needs {_written(name)}, as in {call.name}({example})."
            )
        else:
            values[name] = default
    return values


def signature(name: str, builder: Builder) -> str:
    """Returns the text of a specification with all of its arguments."""
    shown = [
        _written(parameter)
        if default is checks.REQUIRED
        else f"{_written(parameter)}={str(default).lower()}"
        for parameter, default in checks.defaults(builder).items()
    ]
    return f"{name}({', '.join(shown)})" if shown else name


def summary(builder: Builder) -> str:
    """Returns the first paragraph of a function's docstring on one line."""
    return " ".join((inspect.getdoc(builder) or "").split("\n\n")[0].split())


def _spellings(builder: Builder) -> dict[str, str]:
    """Returns all names and alternative names of parameters, with the parameters they denote."""
    hints = typing.get_type_hints(builder, include_extras=True)
    names = {_written(name): name for name in checks.defaults(builder)}
    for name in checks.defaults(builder):
        for part in getattr(hints[name], "__metadata__", ()):
            if isinstance(part, Alias):
                names |= dict.fromkeys(part.names, name)
    return names


def _written(parameter: str) -> str:
    return parameter.rstrip("_")


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0] else text
