"""Statistics over clients: the mean and the worst tenth, in numpy on the host."""

import numpy as np


def mean_known(values: np.ndarray) -> np.ndarray:
    """Returns the mean over the last axis, ignoring nan; nan if all values are nan."""
    known = ~np.isnan(values)
    total = np.where(known, values, 0.0).sum(-1)
    return np.where(known.any(-1), total / np.maximum(known.sum(-1), 1), np.nan)


def worst_decile(values: np.ndarray) -> np.ndarray:
    """Returns the mean of the lowest tenth of the last axis, or at least one, ignoring nan."""
    known = (~np.isnan(values)).sum(-1, keepdims=True)
    lowest = np.sort(values, -1)  # Sorts nan last.
    return mean_known(np.where(np.arange(values.shape[-1]) < np.ceil(known / 10), lowest, np.nan))
