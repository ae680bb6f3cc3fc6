"""FedVLS: keep what the global model knows of vacant classes, and hold wrong logits down.

Guo et al., "Exploring Vacant Classes in Label-Skewed Federated Learning", AAAI 2025.

The teacher is the round's global model and receives no gradient.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common
from fedjax_skew.losses.baselines import balanced_softmax

# The published code adds this to the prior so that its logarithm exists.
PRIOR_EPS = 1e-9


def vacant_class_distillation(
    logits: ArrayLike, teacher_logits: ArrayLike, class_counts: ArrayLike
) -> jax.Array:
    r"""Divergence from the teacher among the classes this client lacks (FedVLS, eq. 3).

    .. math::
        \ell = \sum_{o \in O} q^g_o \log \frac{q^g_o}{q_o}, \qquad O = \{c : n_c = 0\},

    where :math:`q^g` and :math:`q` are the softmax of teacher and student over :math:`O` alone. The
    paper prints the logarithm upside down; a divergence cannot be negative. With fewer than two
    vacant classes the loss is exactly 0.

    Args:
        logits: unnormalised scores ``[..., C]``.
        teacher_logits: the global model's scores ``[..., C]``; no gradient flows to them.
        class_counts: this client's samples of each class ``[C]``.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, teacher = jnp.array([[2.0, 0.0, 1.0]]), jnp.array([[1.0, 1.0, 0.0]])
        >>> loss = losses.vacant_class_distillation(logits, teacher, jnp.array([9, 0, 0]))
        >>> print(np.asarray(loss).round(4))
        [0.4621]

    References:
        Guo et al., `Exploring Vacant Classes in Label-Skewed Federated Learning
        <https://arxiv.org/abs/2401.02329>`_, 2025.
    """
    logits, teacher = _common.floats(logits=logits, teacher_logits=teacher_logits)
    _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    vacant = _common.counts_like(class_counts, logits) <= 0
    return _common.kl_divergence(jax.lax.stop_gradient(teacher), logits, vacant, vacant)


def logit_suppression(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    where: ArrayLike | None = None,
    published_code: bool = False,
) -> jax.Array:
    r"""Mean exponential of the logits of other classes, in the log domain (FedVLS, eqs. 4, 5).

    .. math::
        L = \sum_c p_c \log \Big( \frac{1}{B} \sum_b 1(y_b \ne c)\, e^{f_{bc}} \Big)

    A class that every sample of the batch carries is skipped. Lowering all logits together lowers
    this loss for ever, so it needs a small weight beside a cross-entropy: the published code uses
    0.005, which is not applied here.

    Args:
        logits: unnormalised scores ``[B, C]``.
        labels: integer classes ``[B]``.
        class_counts: this client's samples of each class ``[C]``; :math:`p` is their share.
        where: rows that count ``[B]``; all by default.
        published_code: use :math:`f - \log(p + 10^{-9}) + \log(1/C)` in place of :math:`f`, and set
            the entries of a sample's own class to 0 instead of leaving them out.

    Returns:
        A scalar; 0 if no row counts.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits = jnp.array([[1.0, 0.0], [0.0, 2.0]])
        >>> loss = losses.logit_suppression(logits, jnp.array([0, 1]), jnp.array([3, 1]))
        >>> print(np.asarray(loss).round(4))
        -0.6931

    References:
        Guo et al., `Exploring Vacant Classes in Label-Skewed Federated Learning
        <https://arxiv.org/abs/2401.02329>`_, 2025.
    """
    (logits,) = _common.floats(logits=logits)
    _common.check_rank("logits", logits, 2)
    labels = _common.batch(logits, labels)
    share = _common.prior(_common.counts_like(class_counts, logits))
    size, num_classes = logits.shape
    valid = _common.rows(where, size)
    own = _common.one_hot(labels, num_classes)
    values = jnp.where(valid[:, None], logits, 0)
    if published_code:
        shift = jnp.log(1 / num_classes + PRIOR_EPS) - jnp.log(share + PRIOR_EPS)
        values = jnp.where(own, 0, values + shift)
        counted = jnp.broadcast_to(valid[:, None], own.shape)
    else:
        counted = valid[:, None] & ~own
    number = jnp.maximum(valid.sum(dtype=logits.dtype), 1)
    suppressed = _common.logsumexp(values.T, counted.T) - jnp.log(number)
    return (share * jnp.where(counted.any(axis=0), suppressed, 0)).sum()


def fedvls(
    logits: ArrayLike,
    teacher_logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    lam: float = 0.1,
    logit_weight: float = 0.005,
    where: ArrayLike | None = None,
    published_code: bool = False,
) -> jax.Array:
    r"""The whole objective of a FedVLS client (eq. 6).

    .. math::
        L = L_{cal} + \lambda L_{dis} + w L_{logit},

    with :math:`L_{cal}` the mean of :func:`balanced_softmax`, :math:`L_{dis}` the mean of
    :func:`vacant_class_distillation` and :math:`L_{logit}` from :func:`logit_suppression`.

    Args:
        logits: unnormalised scores ``[B, C]``.
        teacher_logits: the global model's scores ``[B, C]``; no gradient flows to them.
        labels: integer classes ``[B]``.
        class_counts: this client's samples of each class ``[C]``.
        lam: weight of the distillation.
        logit_weight: weight of the suppression. Eq. 6 prints 1, with which training collapses.
        where: rows that count ``[B]``; all by default.
        published_code: add 1e-9 to the prior instead of dropping vacant classes, and use the
            published form of the suppression.

    Returns:
        A scalar; 0 if no row counts.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, teacher = jnp.array([[2.0, 0.0, 1.0]]), jnp.array([[1.0, 1.0, 0.0]])
        >>> labels, counts = jnp.array([0]), jnp.array([9, 0, 0])
        >>> loss = losses.fedvls(logits, teacher, labels, counts)
        >>> print(np.asarray(loss).round(4))
        0.0462

    References:
        Guo et al., `Exploring Vacant Classes in Label-Skewed Federated Learning
        <https://arxiv.org/abs/2401.02329>`_, 2025.
    """
    logits, teacher = _common.floats(logits=logits, teacher_logits=teacher_logits)
    _common.check_rank("logits", logits, 2)
    _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    valid = _common.rows(where, logits.shape[0])
    logits = jnp.where(valid[:, None], logits, 0)
    teacher = jnp.where(valid[:, None], teacher, 0)
    eps = PRIOR_EPS if published_code else None
    calibrated = balanced_softmax(logits, labels, class_counts, eps=eps)
    distilled = vacant_class_distillation(logits, teacher, class_counts)
    suppressed = logit_suppression(
        logits, labels, class_counts, where=valid, published_code=published_code
    )
    calibrated = _common.masked_mean(calibrated, valid)
    return calibrated + lam * _common.masked_mean(distilled, valid) + logit_weight * suppressed
