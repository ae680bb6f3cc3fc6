"""Classification metrics that are computed from a confusion matrix.

A confusion matrix is a sum over samples, so that the matrices of batches, chunks and devices can be
added. ``confusion[..., t, p]`` is the number of samples of true class ``t`` that are predicted as
class ``p``. All functions accept numpy and JAX arrays, inside and outside of ``jit``; leading axes,
such as seeds and clients, are batch axes. Metrics of a numpy array are computed by numpy, in
float32 like those of JAX, so that no program is compiled for them.
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # A numpy or JAX array.


def confusion_matrix(
    labels: Array, predictions: Array, num_classes: int, where: Array | None = None
) -> chex.Array:
    """Counts (true class, predicted class) pairs.

    A label or prediction outside of ``[0, num_classes)`` is ignored like a padded row, because an
    index out of range cannot raise an error inside ``jit`` and would be counted in a wrong cell.

    Args:
        labels: true classes, integers of any shape.
        predictions: predicted classes, of the same shape.
        num_classes: number of classes ``C``.
        where: optional mask of the same shape, false for padding.

    Returns:
        Counts, int32 ``[C, C]``, whose rows are true classes.

    Example:
        >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
        Array([[1, 1],
               [0, 1]], dtype=int32)
    """
    labels, predictions = jnp.asarray(labels), jnp.asarray(predictions)
    chex.assert_equal_shape([labels, predictions])
    keep = (labels >= 0) & (labels < num_classes) & (predictions >= 0) & (predictions < num_classes)
    if where is not None:
        where = jnp.asarray(where)
        chex.assert_equal_shape([labels, where])
        keep = keep & where.astype(bool)
    cell = jnp.where(keep, labels * num_classes + predictions, 0)
    counts = jnp.zeros((num_classes * num_classes,), jnp.int32)
    counts = counts.at[cell.reshape(-1)].add(keep.reshape(-1).astype(jnp.int32))
    return counts.reshape(num_classes, num_classes)


def accuracy(confusion: Array, *, empty: float = float("nan")) -> chex.Array:
    """Computes the share of correctly classified samples, ``[...]``.

    Args:
        confusion: counts ``[..., C, C]``.
        empty: the result if there are no samples.
    """
    confusion = _array(confusion)
    return _ratio(_diagonal(confusion).sum(-1), confusion.sum((-2, -1)), empty)


def per_class_accuracy(confusion: Array, *, empty: float = float("nan")) -> chex.Array:
    """Computes the recall of every class, ``[..., C]``.

    Args:
        confusion: counts ``[..., C, C]``.
        empty: the result for a class without samples.
    """
    confusion = _array(confusion)
    return _ratio(_diagonal(confusion), confusion.sum(-1), empty)


def macro_f1(confusion: Array) -> chex.Array:
    """Computes the unweighted mean of the F1 scores of all classes, ``[...]``.

    The score of a class is ``F1_c = 2 TP_c / (true_c + predicted_c)``. The convention is that of
    scikit-learn's ``f1_score(average="macro", zero_division=0)``: the score of a class that is
    predicted but never true is 0, and a class that is neither true nor predicted is excluded.

    Args:
        confusion: counts ``[..., C, C]``.
    """
    confusion = _array(confusion)
    occurrences = confusion.sum(-1) + confusion.sum(-2)
    f1 = _ratio(2 * _diagonal(confusion), occurrences, 0.0)
    return _ratio(f1.sum(-1), (occurrences > 0).sum(-1), 0.0)


def group_accuracy(confusion: Array, groups: Array, *, empty: float = float("nan")) -> chex.Array:
    """Computes the accuracy on groups of classes, for example head, middle and tail.

    The accuracy of a group is the share of its samples that are correctly classified. On a
    class-balanced test set, it is the mean of the group's per-class accuracies.

    Args:
        confusion: counts ``[..., C, C]``.
        groups: masks over true classes, bool ``[..., G, C]``, whose leading axes are broadcast. See
            ``groups_by_thresholds``, ``groups_by_thirds`` and ``skew.class_roles``.
        empty: the result for a group without samples.

    Returns:
        Accuracies ``[..., G]``.
    """
    confusion = _array(confusion)
    groups = _numpy_of(confusion).asarray(groups).astype(confusion.dtype)
    correct = (groups * _diagonal(confusion)[..., None, :]).sum(-1)
    return _ratio(correct, (groups * confusion.sum(-1)[..., None, :]).sum(-1), empty)


def groups_by_thresholds(class_sizes: Array, upper: float, lower: float) -> np.ndarray:
    """Groups classes into head, middle and tail by their global number of training samples.

    Head classes have more than ``upper`` samples, tail classes fewer than ``lower``, and all others
    are middle classes.

    Args:
        class_sizes: training samples per class over all clients, ``[C]``.
        upper: threshold of the head.
        lower: threshold of the tail.

    Returns:
        Masks, bool ``[3, C]``, in the order head, middle, tail.
    """
    if not lower <= upper:
        raise ValueError(f"lower={lower!r} must not exceed upper={upper!r}.")
    sizes = np.asarray(class_sizes)
    head, tail = sizes > upper, sizes < lower
    return np.stack([head, ~head & ~tail, tail])


def groups_by_thirds(class_sizes: Array) -> np.ndarray:
    """Groups classes into head, middle and tail as thirds of the classes sorted by size.

    Ties are broken by the index of the class. If ``C`` is not a multiple of three, the head has one
    more class, and the middle has one more if two classes remain.

    Args:
        class_sizes: training samples per class over all clients, ``[C]``.

    Returns:
        Masks, bool ``[3, C]``, in the order head, middle, tail.
    """
    sizes = np.asarray(class_sizes)
    groups = np.zeros((3, sizes.size), bool)
    for group, members in enumerate(np.array_split(np.argsort(-sizes, kind="stable"), 3)):
        groups[group, members] = True
    return groups


def _diagonal(confusion: Array) -> Array:
    return _numpy_of(confusion).diagonal(confusion, axis1=-2, axis2=-1)


def _ratio(numerator: Array, denominator: Array, empty: float) -> Array:
    """Returns the quotient in float32, or ``empty`` where the denominator is 0."""
    xp = _numpy_of(denominator)
    numerator, safe = xp.float32(numerator), xp.float32(xp.maximum(denominator, 1))
    return xp.where(denominator > 0, numerator / safe, xp.float32(empty))


def _array(array: Array) -> Array:
    return array if isinstance(array, jax.Array) else np.asarray(array)


def _numpy_of(array: Array) -> Any:
    return jnp if isinstance(array, jax.Array) else np
