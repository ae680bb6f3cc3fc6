"""Entropy of the prediction among the classes present (BalanceFL)."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def prediction_entropy(
    logits: ArrayLike, class_counts: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""Computes the entropy of the softmax over the classes present (BalanceFL, smooth term).

    .. math::
        H = -\sum_{c: n_c > 0} q_c \log q_c, \qquad q = \mathrm{softmax}_{c: n_c > 0}(f)

    BalanceFL subtracts 0.002 times the sum of this entropy over the batch from its loss, with the
    counts of the batch. Its other two terms are :func:`balanced_softmax` with ``tau=0`` and
    :func:`vacant_class_distillation` of halved logits, which also use the counts of the batch.

    Args:
        logits: unnormalised scores ``[..., C]``.
        class_counts: number of samples per class ``[C]``.
        where: rows to include ``[...]``; all by default.

    Returns:
        The entropy of each example ``[...]``, between 0 and the logarithm of the number of classes
        present; 0 if no class is present.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits = jnp.array([[1.0, 1.0, 5.0], [9.0, 1.0, 5.0]])
        >>> entropy = losses.prediction_entropy(logits, jnp.array([2, 1, 0]))
        >>> print(np.asarray(entropy).round(4))
        [0.6931 0.003 ]

    References:
        Shuai et al., `BalanceFL: Addressing Class Imbalance in Long-Tail Federated Learning
        <https://github.com/sxontheway/BalanceFL>`_, 2022.
    """
    (logits,) = _common.promote_floats(logits=logits)
    present = _common.check_counts(class_counts, logits) > 0
    rows = _common.row_mask(where, logits.shape[:-1])
    log_q = _common.log_softmax(_common.zero_rows(logits, rows), present)
    entropy = -jnp.where(present, jnp.exp(log_q) * log_q, 0).sum(axis=-1)
    return _common.zero_rows(entropy, rows)
