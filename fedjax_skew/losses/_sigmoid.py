"""Binary cross-entropies, one per class (Fed-GraB)."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def weighted_binary_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    positive_weights: ArrayLike,
    negative_weights: ArrayLike,
    *,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the sum of weighted binary cross-entropies, one per class (Fed-GraB).

    .. math::
        \ell = -w^+_y \log \sigma(f_y) - \sum_{c \ne y} w^-_c \log(1 - \sigma(f_c)),

    where :math:`\sigma` is the sigmoid. The gradient with respect to a logit is the unweighted
    gradient times the weight, :math:`w (\sigma(f_c) - 1[c = y])`, which Fed-GraB's controllers
    adjust. Weights of 1 give the unweighted loss.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        positive_weights: weights :math:`w^+` of the classes on their own samples ``[C]``.
        negative_weights: weights :math:`w^-` of the classes on samples of other classes ``[C]``.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, labels = jnp.array([[1.0, 0.0, -1.0]]), jnp.array([0])
        >>> plain = losses.weighted_binary_cross_entropy(logits, labels, jnp.ones(3), jnp.ones(3))
        >>> print(np.asarray(plain).round(4))
        [1.3197]

    References:
        Xiao et al., `Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer
        <https://arxiv.org/abs/2310.07587>`_, 2023.
    """
    logits, positive, negative = _common.promote_floats(
        logits=logits, positive_weights=positive_weights, negative_weights=negative_weights
    )
    labels = _common.check_labels(logits, labels)
    _common.check_shape("positive_weights", positive, logits.shape[-1:], "one per class")
    _common.check_shape("negative_weights", negative, logits.shape[-1:], "one per class")
    rows = _common.row_mask(where, labels.shape)
    true = _common.one_hot(labels, logits.shape[-1])
    values = _common.zero_rows(logits, rows)
    # softplus(-f) = -log(sigmoid(f)) and softplus(f) = -log(1 - sigmoid(f)), without overflow.
    each = jnp.where(true, positive * jax.nn.softplus(-values), negative * jax.nn.softplus(values))
    return _common.zero_rows(each.sum(axis=-1), rows & true.any(axis=-1))
