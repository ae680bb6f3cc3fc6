"""FedLC: logits calibrated by a margin that grows as a class becomes rarer."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def fedlc(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    tau: ArrayLike = 1.0,
    min_count: ArrayLike | None = None,
    form: _common.Form = "code",
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the cross-entropy of logits lowered by a margin for rare classes (FedLC, eq. 7).

    .. math::
        \ell = -\log \frac{e^{f_y - \tau n_y^{-1/4}}}{\sum_{c} e^{f_c - \tau n_c^{-1/4}}}

    A class without samples has an infinite margin and is excluded from the softmax. The printed
    denominator omits the true class, which makes the loss unbounded below; every known
    implementation uses the ordinary softmax.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``. A label of a vacant class counts as one sample of it, so
            that the row's loss is the cross-entropy among its own class and the classes present.
        class_counts: the client's number of samples per class ``[C]``.
        tau: strength of the margin, at least 0.
        min_count: lower bound of the counts, above 0. If given, vacant classes stay in the softmax.
        form: ``"code"`` for the ordinary softmax; ``"paper"`` for the printed denominator, with a
            loss of 0 for a row that has no other class.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits = jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])
        >>> loss = losses.fedlc(logits, jnp.array([0, 1]), jnp.array([16, 1, 0]))
        >>> print(np.asarray(loss).round(4))
        [0.2014 0.4741]

    References:
        Zhang et al., `Federated Learning with Label Distribution Skew via Logits Calibration
        <https://arxiv.org/abs/2209.00189>`_, 2022.
    """
    _common.check_form(form)
    (logits,) = _common.promote_floats(logits=logits)
    labels = _common.check_labels(logits, labels)
    counts = _common.check_counts(class_counts, logits)
    tau = _common.scalar("tau", tau, logits.dtype, low=0)
    rows = _common.row_mask(where, labels.shape)
    if min_count is None:
        keep = counts > 0
        counts = jnp.where(keep, counts, 1)
    else:
        keep = jnp.ones_like(counts, bool)
        counts = jnp.maximum(counts, _common.scalar("min_count", min_count, logits.dtype, above=0))
    calibrated = _common.zero_rows(logits, rows) - tau * counts**-0.25
    if form == "code":
        loss = _common.negative_log_likelihood(calibrated, labels, keep)
    else:
        true = _common.one_hot(labels, logits.shape[-1])
        own = jnp.where(true, calibrated, 0).sum(axis=-1, keepdims=True)
        # Subtracting the row's own logit first avoids the cancellation between two large sums.
        loss = _common.logsumexp(calibrated - own, keep & ~true)
        loss = jnp.where(true.any(axis=-1), loss, 0)
    return _common.zero_rows(loss, rows)
