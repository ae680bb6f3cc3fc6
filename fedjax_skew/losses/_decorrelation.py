"""Decorrelation of feature columns over a batch (FedDecorr, FedLF) and within classes (FedMR).

The sum of squared entries of :math:`X^\\top X` equals that of :math:`X X^\\top`, so the smaller of
the two matrices is formed.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common

# Added to the variance of a column or used as its lower bound: a column whose standard deviation is
# below 1e-4 counts as constant.
MIN_VARIANCE = 1e-8


def feature_decorrelation(
    features: ArrayLike, *, form: _common.Form = "code", where: ArrayLike | None = None
) -> jax.Array:
    r"""Penalises squared correlations between feature columns (FedLF L_D, eqs. 10-12).

    .. math::
        L = \frac{1}{B D (D - 1)} \sum_{i \ne j} (X^\top X)_{ij}^2,

    where :math:`X` holds the features minus their mean and divided by
    :math:`\sqrt{10^{-8} + s^2}`, with :math:`s^2` the unbiased variance of the column. This is the
    authors' code, which is the same as FedDecorr's. The paper prints
    :math:`L = \sum_{ij} (X^\top X / B)_{ij}^2`, whose diagonal is constant and whose value grows
    with :math:`D^2`.

    Args:
        features: ``[B, D]``.
        form: ``"code"`` for the equation above; ``"paper"`` for the printed sum, with the biased
            variance and a standard deviation of at least 1e-4.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar; 0 if fewer than two rows are included and, in the form of the code, for D = 1.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> features = jnp.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0]])
        >>> loss = losses.feature_decorrelation(features)
        >>> print(np.asarray(loss).round(4))
        1.0
        >>> loss = losses.feature_decorrelation(features, form="paper")
        >>> print(np.asarray(loss).round(4))
        3.5

    References:
        Lu et al., `FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated
        Long-Tailed Learning <https://arxiv.org/abs/2409.12105>`_, 2024.
    """
    _common.check_form(form)
    return _code(features, where) if form == "code" else _squared_correlations(features, where)


def dimensional_decorrelation(
    features: ArrayLike, *, form: _common.Form = "code", where: ArrayLike | None = None
) -> jax.Array:
    r"""Penalises the mean squared correlation of feature columns (FedDecorr).

    .. math::
        L = \frac{1}{D^2} \lVert R \rVert_F^2,

    where :math:`R` is the correlation matrix of the batch. The loss counteracts dimensional
    collapse. The authors' code sums only the off-diagonal entries, on a scale that is larger by the
    factor :math:`(B - 1)^2 / B \cdot D / (D - 1)`; it equals :func:`feature_decorrelation`. A
    weight that suits one form does not suit the other.

    Args:
        features: ``[B, D]``.
        form: ``"code"`` for the authors' scale, ``"paper"`` for the equation above, with a standard
            deviation of at least 1e-4.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar; 0 if fewer than two rows are included and, in the form of the code, for D = 1.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> features = jnp.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0]])
        >>> loss = losses.dimensional_decorrelation(features)
        >>> print(np.asarray(loss).round(4))
        1.0
        >>> loss = losses.dimensional_decorrelation(features, form="paper")
        >>> print(np.asarray(loss).round(4))
        0.875

    References:
        Shi et al., `Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous
        Federated Learning <https://arxiv.org/abs/2210.00226>`_, 2023.
    """
    _common.check_form(form)
    if form == "code":
        return _code(features, where)
    return _squared_correlations(features, where) / jnp.shape(features)[-1] ** 2


def intra_class_decorrelation(
    features: ArrayLike, labels: ArrayLike, *, num_classes: int, where: ArrayLike | None = None
) -> jax.Array:
    r"""Penalises squared correlations within each class (FedMR, intra-class term).

    .. math::
        L = \frac{1}{n} \sum_c \frac{1}{D (D - 1)} \sum_{i \ne j} (Z_c^\top Z_c)_{ij}^2,

    where :math:`Z_c` holds the features of class c, minus their mean and divided by
    :math:`\sqrt{10^{-8} + s^2}` with :math:`s^2` their unbiased variance, c runs over the classes
    with more than one sample in the batch, and n is the number of those samples. Gradients flow
    through the mean and the variance. A ``[B, B]`` matrix of dot products is formed instead of a
    ``[C, D, D]`` array of correlations. With a single class the loss equals
    :func:`feature_decorrelation`.

    Args:
        features: ``[B, D]``.
        labels: integer classes ``[B]``.
        num_classes: the number of classes C.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar; 0 if no class has two samples, or for D = 1.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> features = jnp.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0], [9.0, 9.0]])
        >>> labels = jnp.array([0, 0, 0, 1])
        >>> loss = losses.intra_class_decorrelation(features, labels, num_classes=2)
        >>> print(np.asarray(loss).round(4))
        1.0

    References:
        Fan et al., `Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping
        <https://arxiv.org/abs/2405.18983>`_, 2023.
    """
    (features,) = _common.promote_floats(features=features)
    _common.check_rank("features", features, 2)
    labels = _common.check_labels(features, labels, "features")
    _common.check_count("num_classes", num_classes, 1)
    size, width = features.shape
    member = _common.one_hot(labels, num_classes) & _common.row_mask(where, (size,))[:, None]
    if width < 2:
        return jnp.zeros((), features.dtype)
    sizes = member.sum(axis=0, dtype=features.dtype)
    # A class with a single row has no correlations.
    member = member & (sizes > 1)
    used = member.any(axis=-1)
    weight = member.astype(features.dtype)

    def class_sum(values: jax.Array) -> jax.Array:
        return jnp.matmul(weight.T, values, precision=_common.PRECISE)

    def of_row(table: jax.Array) -> jax.Array:
        return jnp.matmul(weight, table, precision=_common.PRECISE)

    values = jnp.where(used[:, None], features, 0)
    mean = class_sum(values) / jnp.maximum(sizes, 1)[:, None]
    centered = values - of_row(mean)
    variance = class_sum(jnp.square(centered)) / jnp.maximum(sizes - 1, 1)[:, None]
    standard = centered * jax.lax.rsqrt(MIN_VARIANCE + of_row(variance))
    dots = jnp.matmul(standard, standard.T, precision=_common.PRECISE)
    together = (labels[:, None] == labels) & used[:, None] & used
    everything = jnp.where(together, jnp.square(dots), 0).sum()
    diagonal = jnp.square(class_sum(jnp.square(standard))).sum()
    number = jnp.maximum(used.sum(dtype=features.dtype), 1)
    return (everything - diagonal) / (width * (width - 1)) / number


def _center(features: ArrayLike, where: ArrayLike | None) -> tuple[jax.Array, jax.Array]:
    """Returns the features minus their mean, 0 in masked rows, and the number of rows included."""
    (features,) = _common.promote_floats(features=features)
    _common.check_rank("features", features, 2)
    valid = _common.row_mask(where, features.shape[:1])[:, None]
    number = jnp.maximum(valid.sum(dtype=features.dtype), 1)
    values = jnp.where(valid, features, 0)
    return jnp.where(valid, values - values.sum(axis=0) / number, 0), number


def _squared_sum(standard: jax.Array, scale: jax.Array | float) -> jax.Array:
    """Returns the sum of the squared entries of ``X' X / scale`` for ``X [B, D]``."""
    size, width = standard.shape
    small = standard if size <= width else standard.T
    return jnp.square(jnp.matmul(small, small.T, precision=_common.PRECISE) / scale).sum()


def _squared_correlations(features: ArrayLike, where: ArrayLike | None) -> jax.Array:
    """Returns the sum of the squared entries of the correlation matrix."""
    centered, number = _center(features, where)
    variance = jnp.square(centered).sum(axis=0) / number
    standard = centered * jax.lax.rsqrt(jnp.maximum(variance, MIN_VARIANCE))
    return _squared_sum(standard, number)


def _code(features: ArrayLike, where: ArrayLike | None) -> jax.Array:
    """Computes the loss of the code that the authors of FedDecorr and of FedLF published."""
    centered, number = _center(features, where)
    width = centered.shape[1]
    if width < 2:
        return jnp.zeros((), centered.dtype)
    variance = jnp.square(centered).sum(axis=0) / jnp.maximum(number - 1, 1)
    standard = centered * jax.lax.rsqrt(MIN_VARIANCE + variance)
    diagonal = jnp.square(jnp.square(standard).sum(axis=0)).sum()
    return (_squared_sum(standard, 1.0) - diagonal) / (width * (width - 1)) / number
