"""FedUV: losses that spread out predictions and features, as IID data would."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def classifier_variance(logits: ArrayLike, *, where: ArrayLike | None = None) -> jax.Array:
    r"""Increases the deviation of each class's probability over the batch (FedUV, variance).

    .. math::
        L = \frac{1}{C} \sum_c \max\big(0,\; C^{-1/2} - \mathrm{std}_b\, q_{bc}\big), \qquad
        q = \mathrm{softmax}(f),

    with the unbiased standard deviation. The target :math:`C^{-1/2}` is the standard deviation for
    a batch with one sample of each class, all classified with certainty.

    Args:
        logits: unnormalised scores ``[B, C]``.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar; 0 if fewer than two rows are included.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> loss = losses.classifier_variance(jnp.array([[1.0, 0.0], [0.0, 0.0]]))
        >>> print(np.asarray(loss).round(4))
        0.5437

    References:
        Son et al., `FedUV: Uniformity and Variance for Heterogeneous Federated Learning
        <https://arxiv.org/abs/2402.18372>`_, 2024.
    """
    (logits,) = _common.promote_floats(logits=logits)
    _common.check_rank("logits", logits, 2)
    _common.check_vectors("logits", logits)
    rows = _common.row_mask(where, logits.shape[:1])
    number = rows.sum(dtype=logits.dtype)
    share = _common.zero_rows(jax.nn.softmax(_common.zero_rows(logits, rows), axis=-1), rows)
    centered = _common.zero_rows(share - share.sum(axis=0) / jnp.maximum(number, 1), rows)
    variance = jnp.square(centered).sum(axis=0) / jnp.maximum(number - 1, 1)
    short = jax.nn.relu(logits.shape[1] ** -0.5 - _common.safe_sqrt(variance))
    return jnp.where(number > 1, short.mean(), 0)


def feature_uniformity(
    features: ArrayLike, *, detach_sigma: bool = False, where: ArrayLike | None = None
) -> jax.Array:
    r"""Pushes the features of a batch apart (FedUV, uniformity).

    .. math::
        L = \frac{2}{B (B - 1)} \sum_{i < j} e^{-\lVert h_i - h_j \rVert^2 / \sigma}, \qquad
        \sigma = \mathrm{median}\; \lVert h_i - h_j \rVert^2,

    with the median over the pairs of distinct features; of two middle values, the lower one is
    used. In the authors' code the gradient flows through :math:`\sigma`, so that the gradient of
    the median pair dominates.

    Args:
        features: h ``[B, D]``.
        detach_sigma: whether to treat :math:`\sigma` as a constant.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar; 0 if fewer than two rows are included.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> loss = losses.feature_uniformity(jnp.array([[0.0], [1.0], [3.0]]))
        >>> print(np.asarray(loss).round(4))
        0.4174

    References:
        Son et al., `FedUV: Uniformity and Variance for Heterogeneous Federated Learning
        <https://arxiv.org/abs/2402.18372>`_, 2024.
    """
    (features,) = _common.promote_floats(features=features)
    _common.check_rank("features", features, 2)
    size = features.shape[0]
    rows = _common.row_mask(where, (size,))
    if size < 2:
        return jnp.zeros((), features.dtype)
    values = _common.zero_rows(features, rows)
    first, second = np.triu_indices(size, 1)
    square = jnp.square(values[:, None] - values).sum(axis=-1)[first, second]
    pairs = rows[first] & rows[second]
    apart = pairs & (square > 0)
    middle = jnp.maximum(apart.sum() - 1, 0) // 2
    sigma = jnp.sort(jnp.where(apart, square, jnp.inf))[middle]
    sigma = jnp.where(apart.any(), sigma, 1)
    fixed = jax.lax.stop_gradient(sigma)
    # Dividing by the value first keeps the gradient of the quotient from overflowing.
    scaled = square / fixed
    if not detach_sigma:
        scaled = scaled / (sigma / fixed)
    return _common.masked_mean(jnp.exp(-scaled), pairs)
