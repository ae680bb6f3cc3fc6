"""Claims of papers as data, and the verdict that measured numbers give them.

A claim is a sentence and the contrasts that it says are positive. A contrast is a weighted sum of
measured numbers plus a constant, for example FedLC's accuracy minus FedAvg's. It is computed for
every seed that all of its numbers share, so that what a seed does to both methods cancels.

The rule: the sign of a contrast is decided if its mean over seeds is farther from zero than its
spread, the larger of its own standard deviation over seeds and the typical one. The typical
standard deviation of a contrast is the root mean square, per unit of weight, over all contrasts of
the same columns at the same scale that have at least two seeds, because the spread grows with the
skew; if there are none, over those of the same table or figure. With one seed the contrast must be
farther from zero than three typical standard deviations, and without a typical one it stays
undecided.

A claim *holds* if all its contrasts are decided and positive, it *does not hold* if one of them is
decided and negative, and otherwise it is *undecided*.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
_ONE_SEED = 3.0  # typical standard deviations that a single seed must exceed


class Term(NamedTuple):
    """A measured number with its weight."""

    weight: float
    name: str
    row: str
    column: str


@dataclasses.dataclass(frozen=True)
class Contrast:
    """A weighted sum of numbers that a claim says is positive.

    Attributes:
        label: what it is, ``"FedLC - FedAvg"``.
        terms: the sum.
        constant: added to it.
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
        """Standard deviation of the sum if every number had one of 1."""
        return math.sqrt(sum(term.weight**2 for term in self.terms))


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a paper says.

    Attributes:
        id: ``"<paper>-<word>"``.
        sentence: in one sentence.
        contrasts: what it says is positive.
        printed: the paper's numbers in words, where they are not those of its tables.
    """

    id: str
    sentence: str
    contrasts: tuple[Contrast, ...]
    printed: str = ""

    @property
    def paper(self) -> str:
        """``"fedlc"``."""
        return self.id.partition("-")[0]

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every number it needs, once."""
        return tuple(
            dict.fromkeys(
                term._replace(weight=1.0) for contrast in self.contrasts for term in contrast.terms
            )
        )


Numbers = Mapping[tuple[str, str, str], Mapping[int, float]]  # by name, row, column; by seed


class Measured(NamedTuple):
    """A contrast as measured.

    Attributes:
        contrast: what was measured.
        values: one per seed.
        spread: the larger of its own and the typical standard deviation; nan if unknown.
        sign: 1 or -1 if it is decided, else 0.
    """

    contrast: Contrast
    values: tuple[float, ...]
    spread: float
    sign: int

    @property
    def mean(self) -> float:
        """Over seeds; nan without any."""
        return float(np.mean(self.values)) if self.values else math.nan


class Verdict(NamedTuple):
    """A claim at one scale.

    Attributes:
        claim: the claim.
        word: ``holds``, ``does not hold`` or ``undecided``.
        measured: its contrasts.
        reason: why it is undecided, or empty.
    """

    claim: Claim
    word: str
    measured: tuple[Measured, ...]
    reason: str

    @property
    def decisive(self) -> Measured | None:
        """The measured contrast with the smallest mean, on which the claim hangs."""
        known = [m for m in self.measured if m.values]
        return min(known, key=lambda m: m.mean) if known else None


def evaluate(contrast: Contrast, numbers: Numbers) -> tuple[float, ...]:
    """The contrast for every seed that all of its numbers share."""
    by_term = [numbers.get(term[1:], {}) for term in contrast.terms]
    seeds = sorted(set.intersection(*(set(found) for found in by_term))) if by_term else []
    return tuple(
        contrast.constant
        + sum(t.weight * f[seed] for t, f in zip(contrast.terms, by_term, strict=True))
        for seed in seeds
    )


def typical_deviation(contrasts: Iterable[Contrast], numbers: Numbers) -> float:
    """Root mean square of standard deviations over seeds, per unit of weight; nan if unknown."""
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
    """The verdict on one claim.

    Args:
        claim: the claim.
        numbers: all numbers measured at one scale.
        among: the contrasts of all claims, which say how much numbers vary with the seed.
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
