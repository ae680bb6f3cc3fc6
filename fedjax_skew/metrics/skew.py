"""Statistics of the label skew of a federation.

They are computed from ``class_counts [K, C]`` (clients by classes) in numpy, once per run on the
host. Clients are processed in blocks, so that a million of them need little memory beyond the
counts.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # A numpy or JAX array.

_BLOCK = 1 << 16  # Clients converted to float64 distributions at a time.


def class_roles(class_counts: Array) -> Any:
    """Divides the classes of each client into majority, minority and vacant classes.

    A vacant class has no samples. A majority class has at least the mean count of the classes that
    the client holds, and a minority class has fewer. A client whose classes are equally frequent
    therefore has no minority class.

    The function can be applied to traced arrays.

    Args:
        class_counts: counts ``[..., C]``.

    Returns:
        Masks, bool ``[..., 3, C]``, in the order majority, minority, vacant, as expected by the
        argument ``groups`` of ``classification.group_accuracy``.
    """
    xp = jnp if isinstance(class_counts, jax.Array) else np
    counts = xp.asarray(class_counts)
    present = counts > 0
    mean = counts.sum(-1, keepdims=True) / xp.maximum(present.sum(-1, keepdims=True), 1)
    majority = present & (counts >= mean)
    return xp.stack([majority, present & ~majority, ~present], axis=-2)


def total_variation(class_counts: Array) -> np.ndarray:
    """Computes the total-variation distance of each client's label distribution to the global one.

    ``TV_k = 1/2 sum_c |p_k(c) - p(c)|`` is 0 for equal and 1 for disjoint distributions.

    Args:
        class_counts: counts ``[K, C]``.

    Returns:
        Distances ``[K]``; nan for an empty client.
    """
    return _per_client(class_counts, lambda p, q: 0.5 * np.abs(p - q).sum(-1))


def jensen_shannon(class_counts: Array) -> np.ndarray:
    """Computes the Jensen-Shannon divergence of each client's labels to the global ones, in bits.

    ``JS_k = (KL(p_k || m) + KL(p || m)) / 2`` with ``m = (p_k + p) / 2`` is between 0 and 1.

    Args:
        class_counts: counts ``[K, C]``.

    Returns:
        Divergences ``[K]``; nan for an empty client.
    """

    def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        middle = 0.5 * (p + q)
        return 0.5 * (_relative_entropy(p, middle) + _relative_entropy(q, middle))

    return _per_client(class_counts, divergence)


def gini(sizes: Array) -> float:
    """Computes the Gini coefficient of sizes: 0 if all are equal, close to 1 if one has all."""
    ordered = np.sort(np.asarray(sizes, np.float64))
    total, n = ordered.sum(), ordered.size
    if total == 0:
        return 0.0
    ranks = np.arange(1, n + 1)
    return float((2 * ranks - n - 1) @ ordered / (n * total))


def imbalance_factor(class_sizes: Array) -> float:
    """Computes the imbalance factor, the ratio of the largest to the smallest non-empty class."""
    sizes = np.asarray(class_sizes)
    sizes = sizes[sizes > 0]
    return float(sizes.max() / sizes.min()) if sizes.size else float("nan")


def skew_statistics(class_counts: Array) -> dict[str, Any]:
    """Computes all statistics of this module as plain Python numbers, for ``summary.json``.

    Clients without samples are included only in the statistics of sizes.

    Args:
        class_counts: counts ``[K, C]``.

    Returns:
        A dict with the number of clients, classes and samples; minimum, median and maximum of
        samples and of present classes per client; the mean total-variation distance and
        Jensen-Shannon divergence to the global label distribution; the Gini coefficient of client
        sizes; the share of vacant (client, class) pairs; and the global imbalance factor.
    """
    counts = np.asarray(class_counts)
    if counts.ndim != 2 or counts.size == 0:
        raise ValueError(
            f"class_counts has shape {counts.shape}; a clients x classes matrix is needed."
        )
    sizes = counts.sum(1, dtype=np.int64)
    filled = counts if sizes.all() else counts[sizes > 0]
    present = (filled > 0).sum(1)
    return {
        "num_clients": int(counts.shape[0]),
        "num_classes": int(counts.shape[1]),
        "num_samples": int(sizes.sum()),
        "empty_clients": int((sizes == 0).sum()),
        **_spread("samples_per_client", sizes),
        **_spread("classes_per_client", present),
        "total_variation": _mean(total_variation(filled)),
        "jensen_shannon": _mean(jensen_shannon(filled)),
        "gini_sizes": gini(sizes),
        "vacant_fraction": float((filled == 0).mean()) if filled.size else 1.0,
        "imbalance_factor": imbalance_factor(counts.sum(0, dtype=np.int64)) if filled.size else 1.0,
    }


def _per_client(
    class_counts: Array, distance: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Applies a distance between local and global label distributions to blocks of clients."""
    counts = np.asarray(class_counts)
    total = counts.sum(0, dtype=np.float64)
    overall = total / max(total.sum(), 1.0)
    result = np.empty(len(counts))
    for start in range(0, len(counts), _BLOCK):
        block = counts[start : start + _BLOCK].astype(np.float64)
        sizes = block.sum(1, keepdims=True)
        local = np.divide(block, sizes, out=np.full_like(block, np.nan), where=sizes > 0)
        result[start : start + _BLOCK] = distance(local, overall)
    return result


def _relative_entropy(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    # Where p is 0, the ratio is 1 and the term is 0 log 1 = 0; rows of nan remain nan.
    ratio = np.divide(p, q, out=np.ones(np.broadcast_shapes(p.shape, q.shape)), where=p > 0)
    return (p * np.log2(ratio)).sum(-1)


def _spread(name: str, values: np.ndarray) -> dict[str, float]:
    if not values.size:
        return {f"{name}_{what}": 0.0 for what in ("min", "median", "max")}
    return {
        f"{name}_min": float(values.min()),
        f"{name}_median": float(np.median(values)),
        f"{name}_max": float(values.max()),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0
