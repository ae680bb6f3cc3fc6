"""Builds the contrasts that claims are made of."""

import itertools
from collections.abc import Iterable, Sequence

from experiments import printed
from experiments.verdicts import Contrast, Term
from fedjax_skew.report import names


def minus(name: str, column: str, first: str, second: str, at: str = "") -> Contrast:
    """Returns one row minus another."""
    label = f"{_words(first)} - {_words(second)}{f' at {at}' if at else ''}"
    return Contrast(label, (Term(1, name, first, column), Term(-1, name, second, column)))


def _words(row: str) -> str:
    """Returns a method's name, or the parts of an ablation that are switched on."""
    if "=" not in row:
        return names.method(row)
    pairs = [word.split("=") for word in row.split()]
    if {value for _, value in pairs} <= {"0", "1"} and len(pairs) > 1:
        return " + ".join(name for name, value in pairs if value == "1") or "no part"
    return row


def best(
    name: str, column: str, row: str, others: Sequence[str] = (), at: str = ""
) -> tuple[Contrast, ...]:
    """Returns a row minus each of ``others``, or minus every other row of the column."""
    rows = dict.fromkeys(r.row for r in printed.load(name) if r.column == column)
    return tuple(minus(name, column, row, other, at) for other in others or rows if other != row)


def falls(name: str, row: str, columns: Sequence[str]) -> tuple[Contrast, ...]:
    """Returns contrasts that are positive if a row decreases from each column to the next."""
    return tuple(
        Contrast(
            f"{_words(row)}: {before} - {after}",
            (Term(1, name, row, before), Term(-1, name, row, after)),
        )
        for before, after in itertools.pairwise(columns)
    )


def gap_grows(name: str, first: str, second: str, wide: str, narrow: str, label: str) -> Contrast:
    """Returns a contrast that is positive if two rows differ more in one column than in another."""
    return Contrast(
        f"gap of {_words(first)} to {_words(second)}: {label}",
        (
            Term(1, name, first, wide),
            Term(-1, name, second, wide),
            Term(-1, name, first, narrow),
            Term(1, name, second, narrow),
        ),
    )


def chain(name: str, column: str, rows: Sequence[str]) -> tuple[Contrast, ...]:
    """Returns contrasts that are positive if every row is above the one before it."""
    return tuple(minus(name, column, after, before) for before, after in itertools.pairwise(rows))


def within(name: str, column: str, rows: Sequence[str], limit: float) -> Iterable[Contrast]:
    """Yields contrasts that are positive if no two of the rows differ by more than a limit."""
    for first in rows:
        for second in rows:
            if first != second:
                terms = (Term(-1, name, first, column), Term(1, name, second, column))
                yield Contrast(f"{limit:g} - ({first} - {second})", terms, limit)
