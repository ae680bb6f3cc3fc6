"""The points of a sweep: combinations of values of its fields.

A grid is written as ``client_lr=0.01,0.1; hparams.fedlc.tau=0.5,1``. The points are all
combinations of these values, or random ones. For random points a field may also have a range, such
as ``client_lr=log_uniform(0.001, 1)`` or ``momentum=uniform(0, 0.9)``.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np

from fedjax_skew import checks, methods
from fedjax_skew.config import FIELDS
from fedjax_skew.data import spec
from fedjax_skew.errors import unknown

Point = dict[str, Any]

_DIGITS = 4  # Significant digits of a random number.
_FRUITLESS = 1000  # Draws without a new point after which the points are exhausted.


@dataclasses.dataclass(frozen=True)
class Range:
    """A range of numbers from which random points are drawn."""

    low: float
    high: float
    log: bool
    whole: bool

    def draw(self, rng: np.random.Generator) -> float | int:
        """Draws a number with few digits, uniform in the range or in its logarithm."""
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        return round(value) if self.whole else float(f"{value:.{_DIGITS}g}")


def uniform(*, low: float, high: float) -> tuple[float, float, bool]:
    """Returns a range that is uniform between two bounds."""
    return low, high, False


def log_uniform(*, low: checks.Positive, high: checks.Positive) -> tuple[float, float, bool]:
    """Returns a range that is uniform in the logarithm."""
    return low, high, True


_RANGES: dict[str, spec.Builder] = {"uniform": uniform, "log_uniform": log_uniform}

Axis = tuple[Any, ...] | Range


def parse(text: str) -> dict[str, Axis]:
    """Returns the values of every swept field.

    Raises:
        ValueError: if a field or value is invalid; the message says what is allowed.
    """
    axes: dict[str, Axis] = {}
    for part in spec.split(text, ";", "grid"):
        field, equals, values = part.partition("=")
        field = field.strip()
        if not part.strip():
            continue
        if not equals or not values.strip():
            raise ValueError(
                f"grid={text!r} must read like 'client_lr=0.01,0.1; hparams.fedlc.tau=0.5,1'."
            )
        if field in axes:
            raise ValueError(f"grid={text!r} names {field} twice.")
        axes[field] = _axis(field, _rule(field), values.strip())
    return axes


def points(
    axes: Mapping[str, Axis], names: Sequence[str], *, random: int = 0, seed: int = 0
) -> list[Point]:
    """Returns the points of a sweep, method by method.

    A point contains only the hyper-parameters of its own method. FedAvg is therefore one point,
    however many values the hyper-parameter of another method takes.

    Args:
        axes: the swept fields, without ``method``.
        names: the methods.
        random: the number of random points per method; 0 takes all combinations.
        seed: the seed of the random points; a larger ``random`` keeps the points of a smaller one.
    """
    found: list[Point] = []
    for name in names:
        own = {field: axis for field, axis in axes.items() if _uses(name, field)}
        drawn = _random(own, random, seed) if random else _combinations(own)
        found += [{"method": name, **point} for point in drawn]
    for field in axes:
        if not any(field in point for point in found):
            raise ValueError(f"grid: no method of the sweep uses {field}.")
    return found


def configure(config: ml_collections.ConfigDict, point: Point) -> ml_collections.ConfigDict:
    """Returns the configuration of a point."""
    config = config.copy_and_resolve_references()
    config.update_from_flattened_dict(point)
    return config


def say(value: Any) -> str:
    """Formats a value as in the grid."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rule(field: str) -> checks.Rule:
    """Returns the rule for the values of a field."""
    if field.startswith("hparams."):
        _, method, *name = field.split(".")
        rules = checks.rules(methods.builder(method))
        if ".".join(name) not in rules:
            raise unknown(f"grid: hparams.{method}", ".".join(name), rules)
        return rules[name[0]]
    if field not in FIELDS:
        raise unknown("grid", field, FIELDS)
    if FIELDS[field].execution:
        raise ValueError(f"grid: {field} does not change results, so it cannot be swept.")
    return FIELDS[field].rule


def _axis(field: str, rule: checks.Rule, text: str) -> Axis:
    if rule.kind in (int, float) and text.split("(")[0].strip() in _RANGES:
        call = spec.parse(text, field)
        builder = _RANGES[call.name]
        low, high, log = builder(**spec.bind(call, builder, field))
        for bound in (low, high):
            rule.check(field, int(bound) if rule.kind is int and bound == int(bound) else bound)
        if low >= high:
            raise ValueError(f"{field}={text!r} is empty; the lower bound must come first.")
        return Range(low, high, log, rule.kind is int)
    values = [value.strip() for value in spec.split(text, ",", field)]
    return tuple(_distinct([rule.parse(field, value) for value in values]))


def _uses(method: str, field: str) -> bool:
    return not field.startswith("hparams.") or field.split(".")[1] in method.split("+")


def _combinations(axes: Mapping[str, Axis]) -> list[Point]:
    values: dict[str, tuple[Any, ...]] = {}
    for field, axis in axes.items():
        if isinstance(axis, Range):
            raise ValueError(f"grid: {field} is a range, which needs --random=N.")
        values[field] = axis
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def _random(axes: Mapping[str, Axis], count: int, seed: int) -> list[Point]:
    """Returns ``count`` different points, or fewer if there are not that many."""
    rng = np.random.default_rng(seed)
    found: list[Point] = []
    fruitless = 0
    while len(found) < count and fruitless < _FRUITLESS:
        point = {
            field: axis.draw(rng) if isinstance(axis, Range) else axis[rng.integers(len(axis))]
            for field, axis in axes.items()
        }
        fruitless = fruitless + 1 if point in found else 0
        if not fruitless:
            found.append(point)
    return found


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for place, value in enumerate(values) if value not in values[:place]]
