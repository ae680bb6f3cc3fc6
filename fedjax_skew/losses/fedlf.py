"""FedLF: adaptive logits, class centres with a margin, and decorrelated features.

Lu et al., "FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated Long-Tailed
Learning", ACML 2024.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common

# A column whose standard deviation is below 1e-4 is as good as constant.
MIN_VARIANCE = 1e-8


def adaptive_logit(
    logits: ArrayLike, labels: ArrayLike, class_counts: ArrayLike, *, alpha: float = 0.25
) -> jax.Array:
    r"""Cross-entropy of logits scaled by class size (FedLF L_A, eqs. 3-5).

    .. math::
        \ell = -\log \mathrm{softmax}(a \odot f)_y, \qquad
        a_c = (1 - \alpha) \frac{n_c}{\max n} + \alpha

    The paper's logits come from a head without bias.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        class_counts: this client's samples of each class ``[C]``.
        alpha: scale of a vacant class.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits = jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])
        >>> loss = losses.adaptive_logit(logits, jnp.array([0, 1]), jnp.array([4, 1, 0]))
        >>> print(np.asarray(loss).round(4))
        [0.6803 0.997 ]

    References:
        Lu et al., `FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated
        Long-Tailed Learning <https://arxiv.org/abs/2409.12105>`_, 2024.
    """
    (logits,) = _common.floats(logits=logits)
    labels = _common.batch(logits, labels)
    scale = _common.count_scale(_common.counts_like(class_counts, logits), alpha)
    return _common.negative_log_likelihood(scale * logits, labels)


def class_center(
    features: ArrayLike,
    labels: ArrayLike,
    centers: ArrayLike,
    present: ArrayLike,
    *,
    max_margin: float = 100.0,
    literal_margin: bool = False,
) -> jax.Array:
    r"""Pulls features to their class centre, away from the others (FedLF L_C, eqs. 8, 9).

    .. math::
        \ell = -\log \frac{e^{-(d_y + Q)}}{e^{-(d_y + Q)} + \sum_{c \ne y} e^{-d_c}}, \qquad
        Q = \min\big(\max_{c, c'} \lVert p_c - p_{c'} \rVert, \tau\big),

    where :math:`d_c = \lVert h - p_c \rVert` and :math:`\tau` is ``max_margin``. The paper prints
    :math:`-d_y + Q`, which rewards where it should demand; the default demands the margin.

    Args:
        features: ``[..., D]``.
        labels: integer classes ``[...]``. A label whose class has no centre gives 0.
        centers: class centres ``[C, D]``; no gradient flows to them.
        present: which classes have a centre ``[C]``.
        max_margin: upper limit of the margin.
        literal_margin: use the printed sign of the margin.

    Returns:
        The loss of each example ``[...]``; 0 where only one class has a centre.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> centers = jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
        >>> features, present = jnp.array([[0.0, 1.0]]), jnp.array([True, True, False])
        >>> loss = losses.class_center(features, jnp.array([0]), centers, present)
        >>> print(np.asarray(loss).round(4))
        [1.9165]

    References:
        Lu et al., `FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated
        Long-Tailed Learning <https://arxiv.org/abs/2409.12105>`_, 2024.
    """
    features, centers = _common.floats(features=features, centers=centers)
    labels = _common.batch(features, labels, "features")
    _common.check_rank("centers", centers, 2)
    _common.check_shape(
        "centers", centers, (centers.shape[0], features.shape[-1]), "classes, width of features"
    )
    present = _common.members("present", present, centers.shape[:1])
    centers = jax.lax.stop_gradient(jnp.where(present[:, None], centers, 0))
    apart = jnp.square(centers[:, None] - centers).sum(axis=-1)
    pairs = present[:, None] & present
    margin = jnp.minimum(jnp.sqrt(jnp.where(pairs, apart, 0).max()), max_margin)
    # Differences, not the expanded square: near a centre the expansion loses all its digits.
    distance = _common.safe_sqrt(jnp.square(features[..., None, :] - centers).sum(axis=-1))
    true = _common.one_hot(labels, centers.shape[0])
    scores = jnp.where(true, margin if literal_margin else -margin, 0) - distance
    return _common.negative_log_likelihood(scores, labels, present)


def feature_decorrelation(
    features: ArrayLike, *, where: ArrayLike | None = None, normalize: bool = False
) -> jax.Array:
    r"""Sum of squared correlations between feature columns (FedLF L_D, eqs. 10-12).

    .. math::
        L = \sum_{ij} \Big( \frac{1}{B} X^\top X \Big)_{ij}^2,

    where :math:`X` holds the features with mean 0 and standard deviation 1 (of the batch, divisor
    B) in each column. The diagonal adds a constant. A standard deviation below 1e-4 counts as 1e-4.

    Args:
        features: ``[B, D]``.
        where: rows that count ``[B]``; all by default.
        normalize: divide by :math:`D^2`.

    Returns:
        A scalar; 0 if fewer than two rows count.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> features = jnp.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0]])
        >>> loss = losses.feature_decorrelation(features)
        >>> print(np.asarray(loss).round(4))
        3.5

    References:
        Lu et al., `FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated
        Long-Tailed Learning <https://arxiv.org/abs/2409.12105>`_, 2024;
        Shi et al., `Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous
        Federated Learning <https://arxiv.org/abs/2210.00226>`_, 2023.
    """
    (features,) = _common.floats(features=features)
    _common.check_rank("features", features, 2)
    size, width = features.shape
    valid = _common.rows(where, size)[:, None]
    number = jnp.maximum(valid.sum(dtype=features.dtype), 1)
    values = jnp.where(valid, features, 0)
    centered = jnp.where(valid, values - values.sum(axis=0) / number, 0)
    variance = jnp.square(centered).sum(axis=0) / number
    standard = centered * jax.lax.rsqrt(jnp.maximum(variance, MIN_VARIANCE))
    # X'X and XX' have the same sum of squared entries: form the smaller one.
    small = standard if size <= width else standard.T
    gram = jnp.matmul(small, small.T, precision=_common.PRECISE) / number
    loss = jnp.square(gram).sum()
    return loss / width**2 if normalize else loss


def fedlf(
    logits: ArrayLike,
    features: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    centers: ArrayLike,
    present: ArrayLike,
    *,
    alpha: float = 0.25,
    lam: float = 0.01,
    gamma: float = 0.01,
    max_margin: float = 100.0,
    literal_margin: bool = False,
    normalize: bool = False,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""The whole objective of a FedLF client (eq. 13).

    .. math::
        L = L_A + \lambda L_C + \gamma L_D,

    with the batch means of :func:`adaptive_logit` and :func:`class_center` (the paper sums the
    latter) and :func:`feature_decorrelation`.

    Args:
        logits: unnormalised scores ``[B, C]``.
        features: input of the head ``[B, D]``.
        labels: integer classes ``[B]``.
        class_counts: this client's samples of each class ``[C]``.
        centers: class centres ``[C, D]``; no gradient flows to them.
        present: which classes have a centre ``[C]``.
        alpha: scale of a vacant class in L_A.
        lam: weight of L_C.
        gamma: weight of L_D.
        max_margin: upper limit of the margin in L_C.
        literal_margin: use the printed sign of that margin.
        normalize: divide L_D by :math:`D^2`.
        where: rows that count ``[B]``; all by default.

    Returns:
        A scalar; 0 if no row counts.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> features, centers = jnp.array([[0.0, 1.0], [2.0, 0.0]]), jnp.array([[0.0, 0], [3, 4]])
        >>> logits, labels, counts = features, jnp.array([0, 1]), jnp.array([4, 1])
        >>> loss = losses.fedlf(logits, features, labels, counts, centers, counts > 0)
        >>> print(np.asarray(loss).round(4))
        1.6165

    References:
        Lu et al., `FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated
        Long-Tailed Learning <https://arxiv.org/abs/2409.12105>`_, 2024.
    """
    logits, features = _common.floats(logits=logits, features=features)
    _common.check_rank("logits", logits, 2)
    _common.check_rank("features", features, 2)
    valid = _common.rows(where, logits.shape[0])
    _common.check_shape(
        "features", features, (logits.shape[0], features.shape[1]), "a row for each row of logits"
    )
    centers = jnp.asarray(centers)
    _common.check_shape("centers", centers, (logits.shape[1], features.shape[1]), "classes, width")
    logits = jnp.where(valid[:, None], logits, 0)
    features = jnp.where(valid[:, None], features, 0)
    adapted = adaptive_logit(logits, labels, class_counts, alpha=alpha)
    pulled = class_center(
        features, labels, centers, present, max_margin=max_margin, literal_margin=literal_margin
    )
    decorrelated = feature_decorrelation(features, where=valid, normalize=normalize)
    adapted, pulled = _common.masked_mean(adapted, valid), _common.masked_mean(pulled, valid)
    return adapted + lam * pulled + gamma * decorrelated
