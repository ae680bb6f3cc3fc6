"""FedLF: adaptive logits, and class centres with a margin.

The third term of the method is ``feature_decorrelation``.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common

# The authors' code sets every coordinate of the centre of a class without samples to this value.
VACANT_CENTER = 1e-8


def adaptive_logit(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    alpha: ArrayLike = 0.25,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the cross-entropy of logits scaled by class size (FedLF L_A, eqs. 3-5).

    .. math::
        \ell = -\log \mathrm{softmax}(a \odot f)_y, \qquad
        a_c = (1 - \alpha) \frac{n_c}{\max n} + \alpha

    The logits should come from a head without bias.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        class_counts: the client's number of samples per class ``[C]``.
        alpha: scale of a vacant class.
        where: rows to include ``[...]``; all by default.

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
    (logits,) = _common.promote_floats(logits=logits)
    labels = _common.check_labels(logits, labels)
    counts = _common.check_counts(class_counts, logits)
    alpha = _common.scalar("alpha", alpha, logits.dtype)
    rows = _common.row_mask(where, labels.shape)
    scaled = _common.count_scale(counts, alpha) * _common.zero_rows(logits, rows)
    return _common.zero_rows(_common.negative_log_likelihood(scaled, labels), rows)


def class_center(
    features: ArrayLike,
    labels: ArrayLike,
    centers: ArrayLike,
    present: ArrayLike,
    *,
    max_margin: ArrayLike = 100.0,
    form: _common.Form = "code",
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Pulls features towards their class centre, away from the others (FedLF L_C, eqs. 8, 9).

    .. math::
        \ell = -\log \frac{e^{-(d_y + Q)}}{e^{-(d_y + Q)} + \sum_{c \ne y} e^{-d_c}}, \qquad
        Q = \min\big(\max_{c, c'} \lVert p_c - p_{c'} \rVert, \tau\big),

    where :math:`d_c = \lVert h - p_c \rVert` and :math:`\tau` is ``max_margin``. This is the
    authors' code, in which the centre of a class without samples is 1e-8 in every coordinate and
    takes part in the softmax and in the maximum. The paper prints :math:`-d_y + Q`, which rewards
    the margin instead of enforcing it: the loss vanishes for large Q.

    Args:
        features: h ``[..., D]``.
        labels: integer classes ``[...]``.
        centers: class centres p ``[C, D]``; no gradient flows to them.
        present: which classes have a centre ``[C]``; the other rows of ``centers`` are ignored.
        max_margin: upper limit of the margin, at least 0.
        form: ``"code"`` for the equation above; ``"paper"`` for the printed sign, restricted to the
            classes that have a centre, with a loss of 0 for a row whose class has none.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> centers = jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
        >>> features, present = jnp.array([[0.0, 1.0]]), jnp.array([True, True, False])
        >>> loss = losses.class_center(features, jnp.array([0]), centers, present)
        >>> print(np.asarray(loss).round(4))
        [5.0448]
        >>> loss = losses.class_center(features, jnp.array([0]), centers, present, form="paper")
        >>> print(np.asarray(loss).round(6))
        [0.000263]

    References:
        Lu et al., `FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated
        Long-Tailed Learning <https://arxiv.org/abs/2409.12105>`_, 2024.
    """
    _common.check_form(form)
    features, centers = _common.promote_floats(features=features, centers=centers)
    labels = _common.check_labels(features, labels, "features")
    _common.check_rank("centers", centers, 2)
    width = features.shape[-1]
    _common.check_shape("centers", centers, (centers.shape[0], width), "classes, width of features")
    present = _common.check_present(present, centers.shape[:1])
    max_margin = _common.scalar("max_margin", max_margin, features.dtype, low=0)
    rows = _common.row_mask(where, labels.shape)
    code = form == "code"
    centers = jnp.where(present[:, None], centers, VACANT_CENTER if code else 0)
    centers = jax.lax.stop_gradient(centers)
    apart = jnp.square(centers[:, None] - centers).sum(axis=-1)
    if not code:
        apart = jnp.where(present[:, None] & present, apart, 0)
    margin = jnp.minimum(jnp.sqrt(apart.max()), max_margin)
    # Expanding the square would lose all significant digits near a centre.
    offset = _common.zero_rows(features, rows)[..., None, :] - centers
    distance = _common.safe_sqrt(jnp.square(offset).sum(axis=-1))
    true = _common.one_hot(labels, centers.shape[0])
    scores = jnp.where(true, -margin if code else margin, 0) - distance
    if code:
        loss = _common.negative_log_likelihood(scores, labels)
    else:
        loss = _common.negative_log_likelihood(scores, labels, present)
        loss = _common.zero_rows(loss, (true & present).any(axis=-1))
    return _common.zero_rows(loss, rows)
