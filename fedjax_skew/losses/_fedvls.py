"""FedVLS: distillation of vacant classes, and suppression of the logits of wrong classes.

The first of the method's three terms is ``balanced_softmax``.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common

# The published code adds this to the prior so that its logarithm is finite.
PRIOR_EPS = 1e-9


def vacant_class_distillation(
    logits: ArrayLike,
    teacher_logits: ArrayLike,
    class_counts: ArrayLike,
    *,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the divergence from the teacher among the vacant classes (FedVLS, eq. 3).

    .. math::
        \ell = \sum_{o \in O} q^g_o \log \frac{q^g_o}{q_o}, \qquad O = \{c : n_c = 0\},

    where :math:`q^g` and :math:`q` are the softmax of the teacher and of the student over :math:`O`
    alone. The paper prints the inverse ratio in the logarithm, which would make the divergence
    negative. With fewer than two vacant classes the loss is exactly 0.

    Args:
        logits: unnormalised scores ``[..., C]``.
        teacher_logits: the global model's scores ``[..., C]``; no gradient flows to them.
        class_counts: the client's number of samples per class ``[C]``.
        where: rows to include ``[...]``; all by default.

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
    logits, teacher = _common.promote_floats(logits=logits, teacher_logits=teacher_logits)
    _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    vacant = _common.check_counts(class_counts, logits) <= 0
    rows = _common.row_mask(where, logits.shape[:-1])
    student = _common.zero_rows(logits, rows)
    target = _common.zero_rows(jax.lax.stop_gradient(teacher), rows)
    return _common.zero_rows(_common.kl_divergence(target, student, vacant, vacant), rows)


def logit_suppression(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    form: _common.Form = "code",
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the log of the mean exponential of wrong classes' logits (FedVLS, eqs. 4, 5).

    .. math::
        L = \sum_c p_c \log \Big( \frac{1}{B} \sum_b 1(y_b \ne c)\, e^{f_{bc}} \Big)

    In the printed equation, a class that is the label of every sample of the batch is omitted. The
    equation is unbounded below: lowering all logits together always lowers the loss, so that
    training collapses. The authors' code is bounded: it sets the entries of a sample's own class to
    0 instead of omitting them, uses :math:`f - \log(p + 10^{-9}) + \log(1/C + 10^{-9})` in place of
    :math:`f`, and weights the term by 0.005. That weight is not applied here.

    Args:
        logits: unnormalised scores ``[B, C]``.
        labels: integer classes ``[B]``.
        class_counts: the client's number of samples per class ``[C]``; :math:`p` is their share.
        form: ``"code"`` for the authors' code, ``"paper"`` for the printed equation.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar; 0 if no row is included.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, labels = jnp.array([[1.0, 0.0], [0.0, 2.0]]), jnp.array([0, 1])
        >>> loss = losses.logit_suppression(logits, labels, jnp.array([3, 1]))
        >>> print(np.asarray(loss).round(4))
        -0.0354
        >>> loss = losses.logit_suppression(logits, labels, jnp.array([3, 1]), form="paper")
        >>> print(np.asarray(loss).round(4))
        -0.6931

    References:
        Guo et al., `Exploring Vacant Classes in Label-Skewed Federated Learning
        <https://arxiv.org/abs/2401.02329>`_, 2025.
    """
    _common.check_form(form)
    (logits,) = _common.promote_floats(logits=logits)
    _common.check_rank("logits", logits, 2)
    labels = _common.check_labels(logits, labels)
    counts = _common.check_counts(class_counts, logits)
    share = _common.divide_by_total(counts, counts)
    size, num_classes = logits.shape
    valid = _common.row_mask(where, (size,))
    own = _common.one_hot(labels, num_classes)
    values = jnp.where(valid[:, None], logits, 0)
    if form == "code":
        shift = jnp.log(1 / num_classes + PRIOR_EPS) - jnp.log(share + PRIOR_EPS)
        values = jnp.where(own, 0, values + shift)
        counted = jnp.broadcast_to(valid[:, None], own.shape)
    else:
        counted = valid[:, None] & ~own
    number = jnp.maximum(valid.sum(dtype=logits.dtype), 1)
    suppressed = _common.logsumexp(values.T, counted.T) - jnp.log(number)
    return (share * jnp.where(counted.any(axis=0), suppressed, 0)).sum()
