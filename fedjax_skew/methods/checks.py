"""Checks of hyper-parameters: one sentence with the field, its value and what is allowed.

``whole=True`` is for fields with an integer default: they take integers only. All other numbers may
be integers or floats. Booleans are no numbers here, and neither are infinities and NaN.
"""

from collections.abc import Iterable
from typing import Any

from fedjax_skew.errors import unknown

LARGEST = 1e30  # more does not fit into float32 with some room
LARGEST_WHOLE = 2**31 - 1


def positive(method: str, field: str, value: Any, *, whole: bool = False) -> None:
    """Raises unless ``value > 0``."""
    _require(method, field, value, _number(value, whole) and value > 0, "above 0", whole)


def at_least(method: str, field: str, value: Any, low: float, *, whole: bool = False) -> None:
    """Raises unless ``value >= low``."""
    good = _number(value, whole) and value >= low
    _require(method, field, value, good, f"of at least {low:g}", whole)


def within(
    method: str, field: str, value: Any, low: float, high: float, *, whole: bool = False
) -> None:
    """Raises unless ``low <= value <= high``."""
    good = _number(value, whole) and low <= value <= high
    _require(method, field, value, good, f"from {low:g} to {high:g}", whole)


def flag(method: str, field: str, value: Any) -> None:
    """Raises unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"hparams.{method}.{field}={value!r} must be True or False.")


def choice(method: str, field: str, value: Any, allowed: Iterable[str]) -> None:
    """Raises, with the nearest allowed name, unless ``value`` is one of ``allowed``."""
    names = list(allowed)
    if value not in names:
        raise unknown(f"hparams.{method}.{field}", value, names)


def _number(value: Any, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False
    return abs(value) <= (LARGEST_WHOLE if whole else LARGEST)


def _require(method: str, field: str, value: Any, good: bool, allowed: str, whole: bool) -> None:
    if not good:
        kind = "a whole number" if whole else "a number"
        limit = LARGEST_WHOLE if whole else LARGEST
        if isinstance(value, (int, float)) and value > limit:
            allowed += f" and at most {limit}"
        raise ValueError(f"hparams.{method}.{field}={value!r} must be {kind} {allowed}.")
