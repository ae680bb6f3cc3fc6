"""Summaries of accuracy curves over rounds, as reported by papers, and statistics over seeds.

Everything is computed by numpy on the host. A curve is a pair of increasing ``rounds [T]`` and
``values [..., T]``, whose leading axes, such as seeds, are batch axes.
"""

from typing import Any

import numpy as np

Array = Any  # Anything that numpy can convert to an array.


def last(rounds: Array, values: Array) -> np.ndarray:
    """Returns the value at the last evaluated round, ``[...]``."""
    return _curve(rounds, values)[1][..., -1]


def best(rounds: Array, values: Array) -> np.ndarray:
    """Returns the largest value over all evaluated rounds, ``[...]``; nan if all values are nan.

    If the values are test accuracies, the round is selected on the test set, which should be stated
    with the result.
    """
    values = _curve(rounds, values)[1]
    result = np.where(np.isnan(values), -np.inf, values).max(-1)
    return np.where(np.isnan(values).all(-1), np.nan, result)


def best_round(rounds: Array, values: Array) -> np.ndarray:
    """Returns the first round with the largest value, ``[...]``; the first one if all are nan."""
    rounds, values = _curve(rounds, values)
    return rounds[np.where(np.isnan(values), -np.inf, values).argmax(-1)]


def mean_last(rounds: Array, values: Array, window: int = 50) -> np.ndarray:
    """Returns the mean of the evaluations in the last ``window`` rounds, ``[...]``.

    ``window`` is a number of rounds, not of evaluations: with an evaluation every ``eval_every``
    rounds, these are about ``window / eval_every`` values, and at least the last one.
    """
    rounds, values = _curve(rounds, values)
    if window < 1:
        raise ValueError(f"window={window!r} must be at least 1 round.")
    return values[..., rounds > rounds[-1] - window].mean(-1)


def summarize(rounds: Array, values: Array, window: int = 50) -> dict[str, np.ndarray]:
    """Returns ``last``, ``best``, ``best_round`` and ``mean_last_<window>`` of a curve."""
    return {
        "last": last(rounds, values),
        "best": best(rounds, values),
        "best_round": best_round(rounds, values),
        f"mean_last_{window}": mean_last(rounds, values, window),
    }


def rounds_to_target(rounds: Array, values: Array, target: float) -> int | None:
    """Returns the first evaluated round whose value reaches ``target``, or None.

    Its resolution is that of the evaluations.

    Args:
        rounds: ``[T]``.
        values: one curve ``[T]``.
        target: the value to reach, in the units of ``values``.
    """
    rounds, values = _curve(rounds, values)
    if values.ndim != 1:
        raise ValueError(f"values has shape {values.shape}; one curve [T] is needed.")
    reached = np.flatnonzero(values >= target)
    return int(rounds[reached[0]]) if reached.size else None


def mean_std(values: Array, ddof: int = 1) -> tuple[float, float | None]:
    """Returns the mean and the standard deviation over seeds.

    With ``ddof=1``, the divisor is ``S - 1``, because the seeds are a sample of all seeds. The
    papers do not state which one they use; for 3 seeds, ``ddof=0`` is smaller by a factor of 0.82.

    Args:
        values: one number per seed ``[S]``.
        ddof: the number that is subtracted from ``S`` in the divisor.

    Returns:
        The mean, and the standard deviation or None if there are too few seeds.
    """
    values = np.asarray(values, np.float64).reshape(-1)
    if not values.size:
        raise ValueError("values is empty; at least one seed is needed.")
    std = float(values.std(ddof=ddof)) if values.size > ddof else None
    return float(values.mean()), std


def spearman(first: Array, second: Array) -> float | None:
    """Computes Spearman's rank correlation, in which ties share their mean rank.

    Pairs with a missing value (nan) are excluded.

    Args:
        first: numbers ``[n]``, for example the measured accuracy of each method.
        second: numbers ``[n]``, for example those of a paper.

    Returns:
        A number in ``[-1, 1]``, or None if there are fewer than two pairs or one side is constant,
        so that there is no order to compare.
    """
    from scipy import stats

    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"shapes {first.shape} and {second.shape} differ; two [n] are needed.")
    keep = ~(np.isnan(first) | np.isnan(second))
    ranks = [stats.rankdata(side[keep]) for side in (first, second)]
    if keep.sum() < 2 or any(np.ptp(side) == 0 for side in ranks):
        return None
    return float(np.clip(np.corrcoef(ranks)[0, 1], -1.0, 1.0))


def _curve(rounds: Array, values: Array) -> tuple[np.ndarray, np.ndarray]:
    rounds, values = np.asarray(rounds), np.asarray(values, np.float64)
    if rounds.ndim != 1 or not rounds.size or values.shape[-1:] != rounds.shape:
        raise ValueError(
            f"rounds has shape {rounds.shape} and values {values.shape}; "
            "[T] and [..., T] with T > 0 are needed."
        )
    if (np.diff(rounds) <= 0).any():
        raise ValueError("rounds must increase from one evaluation to the next.")
    return rounds, values
