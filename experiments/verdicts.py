"""Claims of papers as data, and the rule that decides them from measured numbers.

A claim is a sentence together with the contrasts that it asserts to be positive. A contrast is a
weighted sum of measured numbers plus a constant, for example FedLC's accuracy minus FedAvg's. It is
computed for every seed that all of its numbers share, so that effects of the seed on both methods
cancel.

The rule: the sign of a contrast is decided if its mean over seeds is farther from zero than its
spread. The spread is the larger of its own standard deviation over seeds and the typical one. The
typical standard deviation is the root mean square, per unit of weight, over all contrasts of the
same columns at the same scale that have at least two seeds, because the spread grows with the skew.
If there are none, it is taken over the contrasts of the same table or figure. With one seed, the
contrast must be farther from zero than three typical standard deviations. Without a typical
standard deviation it remains undecided.

A claim *holds* if all of its contrasts are decided and positive. It *does not hold* if one of them
is decided and negative. Otherwise it is *undecided*.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
_ONE_SEED = 3.0  # Number of typical standard deviations that a single seed must exceed.


class Term(NamedTuple):
    """A measured number with its weight."""

    weight: float
    name: str
    row: str
    column: str


@dataclasses.dataclass(frozen=True)
class Contrast:
    """A weighted sum of numbers that a claim asserts to be positive.

    Attributes:
        label: a description, such as ``"FedLC - FedAvg"``.
        terms: the terms of the sum.
        constant: a constant that is added to the sum.
    """

    label: str
    terms: tuple[Term, ...]
    constant: float = 0.0

    @property
    def names(self) -> frozenset[str]:
        """The tables and figures that its numbers come from."""
        return frozenset(term.name for term in self.terms)

    @property
    def columns(self) -> frozenset[tuple[str, str]]:
        """The columns of tables and figures that its numbers come from."""
        return frozenset((term.name, term.column) for term in self.terms)

    @property
    def size(self) -> float:
        """The standard deviation of the sum if every number had a standard deviation of 1."""
        return math.sqrt(sum(term.weight**2 for term in self.terms))


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        id: the identifier, ``"<paper>-<word>"``.
        sentence: the claim in one sentence.
        contrasts: the contrasts that it asserts to be positive.
        printed: the paper's evidence in words, if it is not in its tables.
    """

    id: str
    sentence: str
    contrasts: tuple[Contrast, ...]
    printed: str = ""

    @property
    def paper(self) -> str:
        """The key of its paper, such as ``"fedlc"``."""
        return self.id.partition("-")[0]

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every number that it needs, without duplicates."""
        return tuple(
            dict.fromkeys(
                term._replace(weight=1.0) for contrast in self.contrasts for term in contrast.terms
            )
        )


Numbers = Mapping[tuple[str, str, str], Mapping[int, float]]  # by name, row, column; by seed


class Measured(NamedTuple):
    """A measured contrast.

    Attributes:
        contrast: the contrast.
        values: its values, one per seed.
        spread: the larger of its own and the typical standard deviation; nan if unknown.
        sign: 1 or -1 if it is decided, otherwise 0.
    """

    contrast: Contrast
    values: tuple[float, ...]
    spread: float
    sign: int

    @property
    def mean(self) -> float:
        """The mean over seeds; nan without seeds."""
        return float(np.mean(self.values)) if self.values else math.nan


class Verdict(NamedTuple):
    """The verdict on a claim at one scale.

    Attributes:
        claim: the claim.
        word: ``holds``, ``does not hold`` or ``undecided``.
        measured: its measured contrasts.
        reason: why it is undecided; empty if it is decided.
    """

    claim: Claim
    word: str
    measured: tuple[Measured, ...]
    reason: str

    @property
    def decisive(self) -> Measured | None:
        """The measured contrast with the smallest mean, on which the claim depends."""
        known = [m for m in self.measured if m.values]
        return min(known, key=lambda m: m.mean) if known else None


def evaluate(contrast: Contrast, numbers: Numbers) -> tuple[float, ...]:
    """Returns the contrast for every seed that all of its numbers share."""
    by_term = [numbers.get(term[1:], {}) for term in contrast.terms]
    seeds = sorted(set.intersection(*(set(found) for found in by_term))) if by_term else []
    return tuple(
        contrast.constant
        + sum(t.weight * f[seed] for t, f in zip(contrast.terms, by_term, strict=True))
        for seed in seeds
    )


def typical_deviation(contrasts: Iterable[Contrast], numbers: Numbers) -> float:
    """Returns the root mean square of standard deviations per unit of weight; nan if unknown."""
    found = []
    for contrast in contrasts:
        values = evaluate(contrast, numbers)
        if len(values) > 1 and np.isfinite(values).all():
            found.append(float(np.var(values, ddof=1)) / contrast.size**2)
    return math.sqrt(float(np.mean(found))) if found else math.nan


def measure(contrast: Contrast, numbers: Numbers, typical: float) -> Measured:
    """Applies the rule to one contrast."""
    values = evaluate(contrast, numbers)
    if not values or not np.isfinite(values).all():
        return Measured(contrast, values, math.nan, 0)
    expected = typical * contrast.size
    if len(values) == 1:
        spread, limit = expected, _ONE_SEED * expected
    else:
        spread = float(np.nanmax([np.std(values, ddof=1), expected]))
        limit = spread
    mean = float(np.mean(values))
    return Measured(contrast, values, spread, int(np.sign(mean)) if abs(mean) > limit else 0)


def judge(claim: Claim, numbers: Numbers, among: Iterable[Contrast]) -> Verdict:
    """Returns the verdict on one claim.

    Args:
        claim: the claim.
        numbers: all numbers measured at one scale.
        among: the contrasts of all claims, which determine how much numbers vary with the seed.
    """
    among = list(among)

    def typical(contrast: Contrast) -> float:
        near = [other for other in among if other.columns == contrast.columns]
        far = [other for other in among if other.names == contrast.names]
        found = typical_deviation(near, numbers)
        return typical_deviation(far, numbers) if math.isnan(found) else found

    measured = tuple(measure(c, numbers, typical(c)) for c in claim.contrasts)
    if any(m.sign < 0 for m in measured):
        return Verdict(claim, FAILS, measured, "")
    if all(m.sign > 0 for m in measured):
        return Verdict(claim, HOLDS, measured, "")
    missing = sum(not m.values for m in measured)
    if missing == len(measured):
        reason = "not measured"
    elif missing:
        reason = f"{missing} of {len(measured)} contrasts are not measured"
    elif any(len(m.values) == 1 for m in measured if not m.sign):
        reason = "one seed"
    else:
        reason = "within the spread over seeds"
    return Verdict(claim, UNDECIDED, measured, reason)
