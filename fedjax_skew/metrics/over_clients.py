"""Numbers of clients as one: their mean and their worst tenth. Plain numpy on the host."""

import numpy as np


def mean_known(values: np.ndarray) -> np.ndarray:
    """Returns the mean over the last axis without nan; nan if there is nothing else."""
    known = ~np.isnan(values)
    total = np.where(known, values, 0.0).sum(-1)
    return np.where(known.any(-1), total / np.maximum(known.sum(-1), 1), np.nan)


def worst_decile(values: np.ndarray) -> np.ndarray:
    """Returns the mean of the lowest tenth over the last axis, at least one, without nan."""
    known = (~np.isnan(values)).sum(-1, keepdims=True)
    lowest = np.sort(values, -1)  # nan comes last.
    return mean_known(np.where(np.arange(values.shape[-1]) < np.ceil(known / 10), lowest, np.nan))
