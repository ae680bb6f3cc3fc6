"""Checks of hyper-parameters, with one sentence that names the field, its value and what is allowed."""

import math
from typing import Any, NoReturn


def positive(method: str, field: str, value: Any, *, whole: bool = False) -> None:
    """Raises unless ``value`` is a finite number above 0 (an integer if ``whole``)."""
    if not (_number(value, whole) and value > 0):
        _refuse(method, field, value, f"{_kind(whole)} above 0")


def at_least(method: str, field: str, value: Any, low: float, *, whole: bool = False) -> None:
    """Raises unless ``value`` is a finite number of at least ``low``."""
    if not (_number(value, whole) and value >= low):
        _refuse(method, field, value, f"{_kind(whole)} of at least {low:g}")


def within(
    method: str, field: str, value: Any, low: float, high: float, *, whole: bool = False
) -> None:
    """Raises unless ``value`` is a number from ``low`` to ``high``, both included."""
    if not (_number(value, whole) and low <= value <= high):
        _refuse(method, field, value, f"{_kind(whole)} from {low:g} to {high:g}")


def choice(method: str, field: str, value: Any, *allowed: str) -> None:
    """Raises unless ``value`` is one of the ``allowed`` names."""
    if value not in allowed:
        _refuse(method, field, value, "one of " + ", ".join(allowed))


def flag(method: str, field: str, value: Any) -> None:
    """Raises unless ``value`` is True or False."""
    if not isinstance(value, bool):
        _refuse(method, field, value, "True or False")


def _number(value: Any, whole: bool) -> bool:
    kinds = int if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


def _kind(whole: bool) -> str:
    return "a whole number" if whole else "a number"


def _refuse(method: str, field: str, value: Any, allowed: str) -> NoReturn:
    raise ValueError(f"hparams.{method}.{field}={value!r} is not allowed; it must be {allowed}.")
