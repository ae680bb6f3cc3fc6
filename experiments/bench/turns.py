"""Measures contenders in turns within one process, because the speed of a machine varies."""

import time
from typing import NamedTuple, Protocol

import numpy as np

# A measurement is disturbed if the fastest turn is more than this many times the slowest.
SPREAD_LIMIT = 2.0


class Contender(Protocol):
    """Something that can run a round."""

    def round(self) -> int:
        """Runs one round and returns the number of samples it used."""


class Speed(NamedTuple):
    """Samples per second over the turns of one contender."""

    median: float
    slowest: float
    fastest: float

    @property
    def disturbed(self) -> bool:
        """Whether the turns differ too much for the median to mean anything."""
        return self.fastest > SPREAD_LIMIT * self.slowest


def timed(contender: Contender) -> tuple[int, float]:
    """Runs one round and returns its number of samples and its time in seconds."""
    began = time.perf_counter()
    return contender.round(), time.perf_counter() - began


def take_turns(contenders: dict[str, Contender], turns: int) -> dict[str, Speed]:
    """Runs one round of every contender in turn, ``turns`` times, after one warm-up round."""
    for contender in contenders.values():
        contender.round()
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, contender in contenders.items():
            samples, seconds = timed(contender)
            speeds[name].append(samples / seconds)
    return {name: Speed(float(np.median(s)), min(s), max(s)) for name, s in speeds.items()}


def warn(name: str, speed: Speed) -> None:
    """Prints a warning if the turns of a contender differ too much."""
    if speed.disturbed:
        print(
            f"  warning: the turns of {name} range from {speed.slowest:.0f} to {speed.fastest:.0f} "
            f"samples/s, more than {SPREAD_LIMIT:.0f}x; measure again on a quiet machine."
        )
