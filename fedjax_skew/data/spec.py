"""The small grammar of names with arguments: ``name``, ``name(0.1)``, ``name(key=value, ...)``.

Values may be quoted to hold commas or brackets. Positional values take the parameters in their
declared order. Everything that cannot be read is one ``ValueError`` sentence.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

from fedjax_skew import errors

_CALL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_KEY = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)
_BOOLS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}

REQUIRED: Any = object()


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One argument a name takes.

    Attributes:
        name: its name.
        kind: ``float``, ``int``, ``bool`` or ``str``.
        default: its value when absent; ``REQUIRED`` if it must be given.
        low: smallest allowed number.
        high: largest allowed number.
        choices: allowed words of a ``str``; empty allows any.
        aliases: other names for it.
    """

    name: str
    kind: type
    default: Any = REQUIRED
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Call:
    """A parsed name with its arguments, still as text."""

    name: str
    positional: tuple[str, ...]
    keyed: tuple[tuple[str, str], ...]


def split(text: str, separator: str, field: str) -> list[str]:
    """Splits at a separator that stands outside brackets and quotes."""
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
    """Parses one ``name(arguments)``."""
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
                keyed.append((pair.group(1), _plain(pair.group(2))))
            elif keyed:
                raise ValueError(
                    f"{field}={text!r} has the value {part.strip()!r} without a key after a key."
                )
            else:
                positional.append(_plain(part))
    return Call(name, tuple(positional), tuple(keyed))


def bind(call: Call, parameters: Sequence[Parameter], field: str) -> dict[str, Any]:
    """Gives every parameter its checked value."""
    if len(call.positional) > len(parameters):
        raise ValueError(
            f"{field}: {call.name} takes at most {len(parameters)} arguments "
            f"({', '.join(p.name for p in parameters) or 'none'}) but {len(call.positional)} are "
            "given."
        )
    given = {p.name: text for p, text in zip(parameters, call.positional, strict=False)}
    by_name = {alias: p for p in parameters for alias in (p.name, *p.aliases)}
    for key, text in call.keyed:
        if key not in by_name:
            raise errors.unknown(f"{field}: argument of {call.name}", key, by_name)
        name = by_name[key].name
        if name in given:
            raise ValueError(f"{field}: {call.name} has {name} twice.")
        given[name] = text
    values = {}
    for parameter in parameters:
        if parameter.name in given:
            values[parameter.name] = _convert(call.name, parameter, given[parameter.name], field)
        elif parameter.default is REQUIRED:
            raise ValueError(
                f"{field}: {call.name} needs {parameter.name}, as in "
                f"{_example(call.name, parameters)}."
            )
        else:
            values[parameter.name] = parameter.default
    return values


def signature(name: str, parameters: Sequence[Parameter]) -> str:
    """Returns how a name is written with all its arguments."""
    shown = [
        p.name if p.default is REQUIRED else f"{p.name}={_show(p.default)}" for p in parameters
    ]
    return f"{name}({', '.join(shown)})" if shown else name


def _plain(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0] else text


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _example(name: str, parameters: Sequence[Parameter]) -> str:
    def sample(p: Parameter) -> str:
        if p.kind is float:
            return "0.1" if p.low < 0.1 else "100"
        return {int: "2", str: "counts.csv"}.get(p.kind, "true")

    needed = [f"{p.name}={sample(p)}" for p in parameters if p.default is REQUIRED]
    return f"{name}({', '.join(needed)})"


def _convert(name: str, parameter: Parameter, text: str, field: str) -> Any:
    where = f"{field}: {parameter.name}={text!r} of {name}"
    if parameter.kind is str:
        if not text or (parameter.choices and text not in parameter.choices):
            allowed = " or ".join(parameter.choices) or "any text that is not empty"
            raise ValueError(f"{where} is not allowed; allowed: {allowed}.")
        return text
    if parameter.kind is bool:
        if text.lower() not in _BOOLS:
            raise ValueError(f"{where} must be true or false.")
        return _BOOLS[text.lower()]
    noun = "an integer" if parameter.kind is int else "a number"
    try:
        value = parameter.kind(text)
    except ValueError:
        raise ValueError(f"{where} must be {noun}.") from None
    if not (math.isfinite(value) and parameter.low <= value <= parameter.high):
        low, high = parameter.low, parameter.high
        limit = f"of at least {low:g}" if math.isinf(high) else f"in {low:g}..{high:g}"
        raise ValueError(f"{where} must be {noun} {limit}.")
    return value
