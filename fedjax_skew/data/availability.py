"""The availability of clients: uniform, with given weights, or by a schedule.

``availability`` of a configuration is one of

- ``uniform``: all clients are available and equally likely to be drawn;
- ``weighted(path=FILE)``: all clients are available, with the weights in the file;
- ``schedule(path=FILE)``: the file lists the clients that are available in each round.
"""

import pathlib
from typing import Annotated

import numpy as np

from fedjax_skew.checks import text
from fedjax_skew.data import spec
from fedjax_skew.errors import unknown

Path = Annotated[str, text(empty=False)]


def uniform(num_clients: int, cohort_size: int) -> None:
    """All clients are available in all rounds and equally likely."""
    return None


def weighted(num_clients: int, cohort_size: int, *, path: Path) -> np.ndarray:
    """Clients are drawn with weights from a text file with one number per client.

    A cohort is drawn without replacement, one client after another, with probabilities proportional
    to the weights of the remaining clients. Clients of weight 0 never participate.
    """
    field = f"availability=weighted(path={path})"
    try:
        weights = np.array([float(word) for word in _read(field, path).replace(",", " ").split()])
    except ValueError as error:
        if str(error).startswith("availability="):
            raise
        raise ValueError(f"{field} must have one number per client, but {error}.") from None
    if len(weights) != num_clients:
        raise ValueError(f"{field} has {len(weights)} numbers for {num_clients} clients.")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError(f"{field} must have finite numbers of at least 0.")
    positive = int((weights > 0).sum())
    if positive < cohort_size:
        raise ValueError(
            f"{field} has {positive} clients of a weight above 0, but a round asks {cohort_size}; "
            "lower participation or raise weights."
        )
    return _logarithm(weights[None])


def schedule(num_clients: int, cohort_size: int, *, path: Path) -> np.ndarray:
    """Clients are drawn uniformly among those that a line of a text file lists for the round.

    Line ``r`` lists the indices of the clients that are available in round ``r``, separated by
    commas or blanks; after the last line, the first one follows. If a line lists no more clients
    than the size of a cohort, all of them participate. An empty line is a round without clients.
    """
    field = f"availability=schedule(path={path})"
    lines = _read(field, path).rstrip("\n").split("\n")
    there = np.zeros((len(lines), num_clients))
    for row, line in enumerate(lines):
        for word in line.replace(",", " ").split():
            if not word.isdigit() or int(word) >= num_clients:
                raise ValueError(
                    f"{field} has {word!r} in line {row + 1}; it must be the index of a client, "
                    f"from 0 to {num_clients - 1}."
                )
            there[row, int(word)] = 1
    if not there.any():
        raise ValueError(f"{field} names no client.")
    return _logarithm(there)


KINDS: dict[str, spec.Builder] = {"uniform": uniform, "weighted": weighted, "schedule": schedule}


def names() -> dict[str, str]:
    """Returns the signature of each kind of availability with its description."""
    return {spec.signature(name, kind): spec.summary(kind) for name, kind in KINDS.items()}


def check(value: str) -> None:
    """Raises ``ValueError`` if ``availability=value`` is invalid; files are not opened."""
    call = spec.parse(value, "availability")
    if call.name not in KINDS:
        raise unknown("availability", call.name, KINDS)
    spec.bind(call, KINDS[call.name], "availability")


def load(value: str, num_clients: int, cohort_size: int) -> np.ndarray | None:
    """Returns log-weights ``[T, K]`` by round (modulo T), or None if all clients are equal.

    Args:
        value: the field ``availability``.
        num_clients: the number of clients K.
        cohort_size: number of clients per round.

    Raises:
        ValueError: if the field or its file is invalid.
    """
    check(value)
    call = spec.parse(value, "availability")
    kind = KINDS[call.name]
    return kind(num_clients, cohort_size, **spec.bind(call, kind, "availability"))


def _read(field: str, path: str) -> str:
    try:
        return pathlib.Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ValueError(f"{field} cannot be read ({reason}).") from error


def _logarithm(weights: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(weights).astype(np.float32)
