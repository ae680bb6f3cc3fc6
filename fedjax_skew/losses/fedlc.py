r"""FedLC: calibrate logits by a margin that grows as a class gets rarer.

Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def fedlc(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    tau: float = 1.0,
    min_count: float | None = None,
    exclude_true: bool = False,
) -> jax.Array:
    r"""Cross-entropy of logits lowered by a margin for rare classes (FedLC, eq. 7).

    .. math::
        \ell = -\log \frac{e^{f_y - \tau n_y^{-1/4}}}{\sum_{c} e^{f_c - \tau n_c^{-1/4}}}

    A class without samples has an infinite margin and drops out of the softmax. The printed
    denominator leaves the true class out, which makes the loss unbounded below; the ordinary
    softmax is therefore the default.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``. A label whose class drops out gives 0.
        class_counts: this client's samples of each class ``[C]``.
        tau: strength of the margin.
        min_count: smallest count a class is given. With it, vacant classes stay in the softmax.
        exclude_true: leave the true class out of the denominator, as printed. A sample without
            another class then gives 0.

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
    (logits,) = _common.floats(logits=logits)
    labels = _common.batch(logits, labels)
    counts = _common.counts_like(class_counts, logits)
    if min_count is None:
        keep = counts > 0
        counts = jnp.where(keep, counts, 1)
    else:
        _common.check_positive(min_count=min_count)
        keep = jnp.ones_like(counts, bool)
        counts = jnp.maximum(counts, min_count)
    calibrated = logits - tau * counts**-0.25
    if not exclude_true:
        return _common.negative_log_likelihood(calibrated, labels, keep)
    true = _common.one_hot(labels, logits.shape[-1])
    own = jnp.where(true, calibrated, 0).sum(axis=-1, keepdims=True)
    # Subtracting the own logit first keeps digits that the difference of two sums would lose.
    loss = _common.logsumexp(calibrated - own, keep & ~true)
    return jnp.where((true & keep).any(axis=-1), loss, 0)
