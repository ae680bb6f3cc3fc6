"""Softmax losses of the baselines: plain, balanced, restricted, focal and CalFAT's.

They differ in what happens to a class the client has few or no samples of: nothing, a shift of its
logit, a scale of its logit, or a weight on its samples.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def cross_entropy(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""Plain softmax cross-entropy.

    .. math::
        \ell = -\log \frac{e^{f_y}}{\sum_c e^{f_c}}

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.

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
    """
    (logits,) = _common.floats(logits=logits)
    return _common.negative_log_likelihood(logits, _common.batch(logits, labels))


def balanced_softmax(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    tau: float = 1.0,
    eps: float | None = None,
) -> jax.Array:
    r"""Cross-entropy of logits shifted by the log prior (balanced softmax, logit adjustment).

    .. math::
        \ell = -\log \frac{e^{f_y + \tau \log p_y}}{\sum_c e^{f_c + \tau \log p_c}},
        \qquad p_c = n_c / N

    With this client's counts it is the calibrated loss of FedVLS (eq. 2); with the counts of all
    clients it is logit adjustment for a global long tail.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``. A label whose class drops out gives 0.
        class_counts: samples of each class ``[C]``.
        tau: strength of the shift.
        eps: added to the prior. Without it, vacant classes drop out of the softmax.

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
    (logits,) = _common.floats(logits=logits)
    labels = _common.batch(logits, labels)
    share = _common.prior(_common.counts_like(class_counts, logits))
    if eps is not None:
        _common.check_positive(eps=eps)
        return _common.negative_log_likelihood(logits + tau * jnp.log(share + eps), labels)
    present = share > 0
    shift = tau * jnp.log(jnp.where(present, share, 1))
    return _common.negative_log_likelihood(logits + shift, labels, present)


def restricted_softmax(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    alpha: float = 0.5,
    soft: bool = False,
) -> jax.Array:
    r"""Cross-entropy of logits scaled down for missing classes (FedRS).

    .. math::
        \ell = -\log \frac{e^{s_y f_y}}{\sum_c e^{s_c f_c}}, \qquad
        s_c = 1 \text{ if } n_c > 0 \text{ else } \alpha

    The method's own classifier has no bias: the scale is meant for :math:`W h`.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        class_counts: this client's samples of each class ``[C]``.
        alpha: scale of a missing class.
        soft: use :math:`s_c = \alpha + (1 - \alpha) n_c / \max n`, as the published code does. It
            scales rare classes down too.

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
        >>> loss = losses.restricted_softmax(logits, labels, counts, soft=True)
        >>> print(np.asarray(loss).round(4))
        [0.862  1.0954]

    References:
        Li and Zhan, `FedRS: Federated Learning with Restricted Softmax for Label Distribution
        Non-IID Data <https://doi.org/10.1145/3447548.3467254>`_, 2021.
    """
    (logits,) = _common.floats(logits=logits)
    labels = _common.batch(logits, labels)
    counts = _common.counts_like(class_counts, logits)
    if soft:
        scale = _common.count_scale(counts, alpha)
    else:
        scale = jnp.where(counts > 0, 1, jnp.asarray(alpha, logits.dtype))
    return _common.negative_log_likelihood(scale * logits, labels)


def focal(
    logits: ArrayLike, labels: ArrayLike, *, gamma: float = 2.0, alpha: float = 0.25
) -> jax.Array:
    r"""Focal loss of the softmax: samples already well classified count less.

    .. math::
        \ell = -\alpha (1 - q_y)^\gamma \log q_y, \qquad q = \mathrm{softmax}(f)

    The factor :math:`(1 - q_y)^\gamma` carries a gradient.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        gamma: how fast the weight of an easy sample falls; 0 gives scaled cross-entropy.
        alpha: scale of the loss, one for all classes.

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
    loss = cross_entropy(logits, labels)
    # 1 - q by expm1 keeps its digits near q = 1; the floor keeps the power's gradient finite there.
    wrong = jnp.maximum(-jnp.expm1(-loss), jnp.finfo(loss.dtype).tiny)
    return alpha * wrong**gamma * loss


def calfat(
    logits: ArrayLike, labels: ArrayLike, class_counts: ArrayLike, *, scale: float = 10.0
) -> jax.Array:
    r"""Cross-entropy in the form of CalFAT's published code.

    .. math::
        \ell = -\log \mathrm{softmax}\big(s\,(f + 0.1 \log(n + 10^{-7}))\big)_y

    With the published scale of 10 the shift is :math:`\log n`. A vacant class counts as one sample.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        class_counts: this client's samples of each class ``[C]``.
        scale: factor on the shifted logits.

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
    (logits,) = _common.floats(logits=logits)
    labels = _common.batch(logits, labels)
    counts = _common.counts_like(class_counts, logits)
    shift = 0.1 * jnp.log(jnp.where(counts > 0, counts, 1) + 1e-7)
    return _common.negative_log_likelihood(scale * (logits + shift), labels)
