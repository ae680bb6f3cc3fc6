"""Rules that validate configuration fields and hyper-parameters.

A rule states which values are allowed. Every configuration field has a rule. Functions that build
methods, partitions or datasets declare the rules of their parameters in their signature::

    @validated("hparams.fedlc")
    def fedlc(*, tau: Annotated[float, at_least(0)] = 1.0, form: Literal["paper", "code"] = "code"):
        ...

``bool``, ``int``, ``float``, ``str`` and ``Literal`` annotations are rules themselves, and frequent
rules have names, as in ``tau: NonNegative = 1.0``. A value that violates its rule raises a
``ValueError`` whose message is one sentence that names the field, the value and the allowed values.
"""

import ast
import dataclasses
import functools
import inspect
import math
import numbers
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from fedjax_skew.errors import unknown

LARGEST = 1e30  # Larger values could overflow in float32.
LARGEST_INT = 2**31 - 1
REQUIRED: Any = inspect.Parameter.empty

_BOOLS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule for the value of a field.

    Attributes:
        kind: ``float``, ``int``, ``bool``, ``str`` or ``tuple``.
        allowed: a description that completes the sentence "it must be ...".
        accepts: returns whether a value of that kind is allowed.
        choices: the allowed values of a ``str``, or empty.
        example: an example for error messages.
        smoke: the largest value in a smoke run, or None to keep the value.
    """

    kind: type
    allowed: str
    accepts: Callable[[Any], bool] = lambda value: True
    choices: tuple[str, ...] = ()
    example: Any = None
    smoke: int | None = None

    def check(self, field: str, value: Any) -> None:
        """Raises ``ValueError`` if ``value`` is not allowed."""
        if self.choices and not (isinstance(value, str) and value in self.choices):
            raise unknown(field, value, self.choices)
        try:
            good = _is_a(self.kind, value) and self.accepts(value)
        except (TypeError, OverflowError):
            good = False
        if not good:
            raise ValueError(f"{field}={value!r} is not allowed; it must be {self.allowed}.")

    def parse(self, field: str, text: str) -> Any:
        """Converts and checks an argument of a specification such as ``dirichlet(beta=0.1)``."""
        value: Any = text
        try:
            if self.kind is bool:
                value = _BOOLS[text.lower()]
            elif self.kind in (int, float):
                value = self.kind(text)
            elif self.kind is tuple:
                value = ast.literal_eval(text)
        except (KeyError, ValueError, SyntaxError):
            pass
        self.check(field, value)
        return value


def _is_a(kind: type, value: Any) -> bool:
    """Returns whether ``value`` has the kind; an int is also a float, a bool is neither."""
    if kind is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if kind is tuple:
        return isinstance(value, (tuple, list))
    return isinstance(value, kind)


def number(low: float = -LARGEST, high: float = LARGEST, *, above: bool = False) -> Rule:
    """Returns the rule for a number in ``[low, high]``, or in ``(low, high]`` with ``above``."""

    def accepts(value):
        return math.isfinite(value) and (value > low if above else value >= low) and value <= high

    if high == LARGEST and low > -LARGEST:
        words = f"a number above {low:g}" if above else f"a number of at least {low:g}"
        words += f" and at most {LARGEST:g}"
    elif above:
        words = f"a number above {low:g} and at most {high:g}"
    else:
        words = f"a number from {low:g} to {high:g}"
    large = high if high < LARGEST else 10 * low
    return Rule(float, words, accepts, example=0.1 if low < 0.1 <= high else large)


def whole(low: int = -LARGEST_INT, high: int = LARGEST_INT, *, smoke: int | None = None) -> Rule:
    """Returns the rule for an integer in ``[low, high]``, at most ``smoke`` in a smoke run."""
    words = f"a whole number from {low} to {high}"
    example = max(low, min(2, high))
    return Rule(int, words, lambda value: low <= value <= high, example=example, smoke=smoke)


def at_least(low: float) -> Rule:
    """Returns the rule for a number of at least ``low``."""
    return number(low)


def above(low: float) -> Rule:
    """Returns the rule for a number above ``low``."""
    return number(low, above=True)


def choice(*names: str) -> Rule:
    """Returns the rule for one of the given names."""
    return Rule(str, "one of " + ", ".join(names), choices=names, example=names[0])


def several(*names: str) -> Rule:
    """Returns the rule for any of the given names, separated by commas, or an empty string."""

    def accepts(value):
        return not value or (set(value.split(",")) <= set(names))

    words = f"names separated by commas, from {', '.join(names)}"
    return Rule(str, words, accepts, example=names[0])


def text(*, empty: bool = True) -> Rule:
    """Returns the rule for any string, or for any non-empty string."""
    words = "a string" if empty else "a non-empty string"
    return Rule(str, words, lambda value: empty or bool(value), example="FILE")


FLAG = Rule(bool, "True or False", example=True)

Positive = Annotated[float, above(0)]
NonNegative = Annotated[float, at_least(0)]
Fraction = Annotated[float, number(0, 1)]
BelowOne = Annotated[float, number(0, 0.9999)]  # Momentum and decay rates.
PositiveInt = Annotated[int, whole(1)]
NonNegativeInt = Annotated[int, whole(0)]
NumRounds = Annotated[int, whole(1, smoke=1)]  # Length of a phase of a method.
NumSteps = Annotated[int, whole(1, smoke=2)]  # Steps or epochs of a loop inside a method.


@functools.cache
def rules(builder: Callable[..., Any]) -> Mapping[str, Rule]:
    """Returns the rules of a function's keyword-only parameters, from their annotations."""
    hints = typing.get_type_hints(inspect.unwrap(builder), include_extras=True)
    return {name: _rule(hints[name]) for name in defaults(builder)}


def defaults(builder: Callable[..., Any]) -> dict[str, Any]:
    """Returns the defaults of keyword-only parameters; ``REQUIRED`` if there is none."""
    parameters = inspect.signature(builder).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def validated(prefix: str) -> Callable[[Callable[_Args, _Result]], Callable[_Args, _Result]]:
    """Returns a decorator that validates the keyword-only arguments of a function.

    Args:
        prefix: prefix of the parameters' names in error messages: with ``hparams.fedlc``, the
            parameter ``tau`` is called ``hparams.fedlc.tau``.
    """

    def decorate(builder):
        @functools.wraps(builder)
        def checked(*args, **kwargs):
            for name, value in kwargs.items():
                if name not in rules(builder):
                    raise unknown(prefix, name, rules(builder))
                rules(builder)[name].check(f"{prefix}.{name}", value)
            return builder(*args, **kwargs)

        return checked

    return decorate


def _rule(hint: Any) -> Rule:
    """Returns the rule of an annotation."""
    if typing.get_origin(hint) is typing.Annotated:
        return next(part for part in hint.__metadata__ if isinstance(part, Rule))
    if typing.get_origin(hint) is Literal:
        return choice(*typing.get_args(hint))
    return {bool: FLAG, int: whole(), float: number(), str: text()}[hint]
