"""Softmax losses: plain, balanced, restricted, focal and CalFAT's.

They differ in how they treat a class of which the client has few or no samples: they leave it
unchanged, shift its logit, scale its logit, or weight its samples.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""Computes the softmax cross-entropy.

    .. math::
        \ell = -\log \frac{e^{f_y}}{\sum_c e^{f_c}}

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits = jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])
        >>> loss = losses.cross_entropy(logits, jnp.array([0, 1]))
        >>> print(np.asarray(loss).round(4))
        [1.4076 1.4076]

    References:
        Goodfellow et al., `Deep Learning <https://www.deeplearningbook.org>`_, section 6.2.2, 2016.
    """
    (logits,) = _common.promote_floats(logits=logits)
    labels = _common.check_labels(logits, labels)
    rows = _common.row_mask(where, labels.shape)
    loss = _common.negative_log_likelihood(_common.zero_rows(logits, rows), labels)
    return _common.zero_rows(loss, rows)


def balanced_softmax(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    tau: ArrayLike = 1.0,
    eps: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the cross-entropy of logits shifted by the log prior (logit adjustment).

    .. math::
        \ell = -\log \frac{e^{f_y + \tau \log p_y}}{\sum_c e^{f_c + \tau \log p_c}},
        \qquad p_c = n_c / N

    With one client's counts, this is the calibrated loss of FedVLS (eq. 2). With the counts of all
    clients, it is logit adjustment for a globally long-tailed dataset. With ``tau=0``, it is the
    cross-entropy among the classes present.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``. A label of a vacant class counts as one sample of it.
        class_counts: number of samples per class ``[C]``.
        tau: strength of the shift, at least 0.
        eps: constant above 0, added to the prior. If None, vacant classes are excluded from the
            softmax.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits = jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])
        >>> loss = losses.balanced_softmax(logits, jnp.array([0, 1]), jnp.array([3, 1, 0]))
        >>> print(np.asarray(loss).round(4))
        [0.1157 0.7437]

    References:
        Ren et al., `Balanced Meta-Softmax for Long-Tailed Visual Recognition
        <https://arxiv.org/abs/2007.10740>`_, 2020;
        Menon et al., `Long-tail Learning via Logit Adjustment
        <https://arxiv.org/abs/2007.07314>`_, 2021.
    """
    (logits,) = _common.promote_floats(logits=logits)
    labels = _common.check_labels(logits, labels)
    counts = _common.check_counts(class_counts, logits)
    tau = _common.scalar("tau", tau, logits.dtype, low=0)
    rows = _common.row_mask(where, labels.shape)
    if eps is not None:
        eps = _common.scalar("eps", eps, logits.dtype, above=0)
        present = None
        shift = tau * jnp.log(_common.divide_by_total(counts, counts) + eps)
    else:
        present = counts > 0
        shift = tau * jnp.log(_common.divide_by_total(jnp.where(present, counts, 1), counts))
    shifted = _common.zero_rows(logits, rows) + shift
    return _common.zero_rows(_common.negative_log_likelihood(shifted, labels, present), rows)


def restricted_softmax(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    alpha: ArrayLike = 0.5,
    form: _common.Form = "paper",
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the cross-entropy of logits scaled down for missing classes (FedRS).

    .. math::
        \ell = -\log \frac{e^{s_y f_y}}{\sum_c e^{s_c f_c}}, \qquad
        s_c = 1 \text{ if } n_c > 0 \text{ else } \alpha

    The scale is meant for logits :math:`W h`, because the method's classifier has no bias.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        class_counts: the client's number of samples per class ``[C]``.
        alpha: scale of a missing class.
        form: ``"paper"`` for the scale above; ``"code"`` for
            :math:`s_c = \alpha + (1 - \alpha) n_c / \max n`, which also scales rare classes down.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, labels = jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]]), jnp.array([0, 1])
        >>> counts = jnp.array([4, 1, 0])
        >>> loss = losses.restricted_softmax(logits, labels, counts)
        >>> print(np.asarray(loss).round(4))
        [0.862 0.862]
        >>> loss = losses.restricted_softmax(logits, labels, counts, form="code")
        >>> print(np.asarray(loss).round(4))
        [0.862  1.0954]

    References:
        Li and Zhan, `FedRS: Federated Learning with Restricted Softmax for Label Distribution
        Non-IID Data <https://doi.org/10.1145/3447548.3467254>`_, 2021.
    """
    _common.check_form(form)
    (logits,) = _common.promote_floats(logits=logits)
    labels = _common.check_labels(logits, labels)
    counts = _common.check_counts(class_counts, logits)
    alpha = _common.scalar("alpha", alpha, logits.dtype)
    rows = _common.row_mask(where, labels.shape)
    if form == "code":
        scale = _common.count_scale(counts, alpha)
    else:
        scale = jnp.where(counts > 0, 1, jnp.asarray(alpha, logits.dtype))
    scaled = scale * _common.zero_rows(logits, rows)
    return _common.zero_rows(_common.negative_log_likelihood(scaled, labels), rows)


def focal(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    gamma: ArrayLike = 2.0,
    alpha: ArrayLike = 0.25,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the focal loss, which gives well-classified samples a smaller weight.

    .. math::
        \ell = -\alpha (1 - q_y)^\gamma \log q_y, \qquad q = \mathrm{softmax}(f)

    Gradients flow through the factor :math:`(1 - q_y)^\gamma`.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        gamma: strength of the focus on hard samples, at least 0; 0 gives the cross-entropy times
            ``alpha``.
        alpha: scale of the loss, equal for all classes.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits = jnp.array([[1.0, 0.0, 2.0], [0.0, 5.0, 0.0]])
        >>> loss = losses.focal(logits, jnp.array([0, 1]))
        >>> print(np.asarray(loss).round(6))
        [2.00737e-01 1.00000e-06]

    References:
        Lin et al., `Focal Loss for Dense Object Detection <https://arxiv.org/abs/1708.02002>`_,
        2017.
    """
    loss = cross_entropy(logits, labels, where=where)
    gamma = _common.scalar("gamma", gamma, loss.dtype, low=0)
    alpha = _common.scalar("alpha", alpha, loss.dtype)
    # expm1 keeps 1 - q precise near q = 1; the lower bound keeps the power's gradient finite there.
    wrong = jnp.maximum(-jnp.expm1(-loss), jnp.finfo(loss.dtype).tiny)
    return alpha * wrong**gamma * loss


def calfat(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    scale: ArrayLike = 10.0,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the cross-entropy of CalFAT's published code.

    .. math::
        \ell = -\log \mathrm{softmax}\big(s\,(f + 0.1 \log(n + 10^{-7}))\big)_y

    With the published scale of 10, the shift is :math:`\log n`. A vacant class counts as having one
    sample.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        class_counts: the client's number of samples per class ``[C]``.
        scale: the factor s on the shifted logits.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits = jnp.array([[0.1, 0.0, 0.2], [0.0, 0.1, 0.2]])
        >>> loss = losses.calfat(logits, jnp.array([0, 1]), jnp.array([8, 1, 0]))
        >>> print(np.asarray(loss).round(4))
        [0.3263 1.8963]

    References:
        Chen et al., `CalFAT: Calibrated Federated Adversarial Training with Label Skewness
        <https://arxiv.org/abs/2205.14926>`_, 2022.
    """
    (logits,) = _common.promote_floats(logits=logits)
    labels = _common.check_labels(logits, labels)
    counts = _common.check_counts(class_counts, logits)
    scale = _common.scalar("scale", scale, logits.dtype)
    rows = _common.row_mask(where, labels.shape)
    shift = 0.1 * jnp.log(jnp.where(counts > 0, counts, 1) + 1e-7)
    scaled = scale * (_common.zero_rows(logits, rows) + shift)
    return _common.zero_rows(_common.negative_log_likelihood(scaled, labels), rows)
