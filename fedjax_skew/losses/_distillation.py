"""Distillation losses: FedNTD, FedLMD, and ensemble distillation on the server.

The teacher is treated as a constant: no gradient flows to it.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def not_true_distillation(
    logits: ArrayLike,
    labels: ArrayLike,
    teacher_logits: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the divergence from the teacher among all classes but the true one (FedNTD).

    .. math::
        \ell = T^2\, \mathrm{KL}(\tilde q^g \,\Vert\, \tilde q), \qquad
        \tilde q = \mathrm{softmax}_{c \ne y}(f / T)

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        teacher_logits: the global model's scores ``[..., C]``.
        temperature: T, above 0.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``; 0 if there are only two classes.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, teacher = jnp.array([[5.0, 1.0, 0.0]]), jnp.array([[0.0, 0.0, 1.0]])
        >>> loss = losses.not_true_distillation(logits, jnp.array([0]), teacher)
        >>> print(np.asarray(loss).round(4))
        [0.4621]

    References:
        Lee et al., `Preservation of the Global Knowledge by Not-True Distillation in Federated
        Learning <https://arxiv.org/abs/2106.03097>`_, 2022.
    """
    logits, teacher = _common.promote_floats(logits=logits, teacher_logits=teacher_logits)
    labels = _common.check_labels(logits, labels)
    _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    temperature = _common.scalar("temperature", temperature, logits.dtype, above=0)
    rows = _common.row_mask(where, labels.shape)
    others = ~_common.one_hot(labels, logits.shape[-1])
    student = _common.zero_rows(logits, rows) / temperature
    target = _common.zero_rows(jax.lax.stop_gradient(teacher), rows) / temperature
    loss = temperature**2 * _common.kl_divergence(target, student, others, others)
    return _common.zero_rows(loss, rows)


def label_masking_distillation(
    logits: ArrayLike,
    labels: ArrayLike,
    teacher_logits: ArrayLike | None,
    class_counts: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the divergence from a teacher restricted to minority classes (FedLMD, FedLMD-Tf).

    .. math::
        \ell = T^2\, \mathrm{KL}(\tilde q^g \,\Vert\, \tilde q),

    where :math:`\tilde q` is the student's softmax of :math:`f / T` without the true class, and
    :math:`\tilde q^g` is the teacher's softmax without the true class and without the majority
    classes. A majority class has more samples than the mean over all classes. For equal counts the
    loss equals :func:`not_true_distillation`.

    Args:
        logits: unnormalised scores ``[..., C]``.
        labels: integer classes ``[...]``.
        teacher_logits: the global model's scores ``[..., C]``, or None for the teacher-free
            variant, whose target is the uniform distribution over the same classes.
        class_counts: this client's samples of each class ``[C]``.
        temperature: T, above 0.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``; 0 where no minority class remains.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, teacher = jnp.array([[5.0, 1.0, 0.0, 2.0]]), jnp.array([[0.0, 0.0, 1.0, 0.0]])
        >>> labels, counts = jnp.array([0]), jnp.array([1, 9, 0, 2])
        >>> loss = losses.label_masking_distillation(logits, labels, teacher, counts)
        >>> print(np.asarray(loss).round(4))
        [1.2875]

    References:
        Lu et al., `Federated Learning with Label-Masking Distillation
        <https://github.com/wnma3mz/FedLMD>`_, 2023.
    """
    if teacher_logits is None:
        (logits,) = _common.promote_floats(logits=logits)
        teacher = jnp.zeros_like(logits)
    else:
        logits, teacher = _common.promote_floats(logits=logits, teacher_logits=teacher_logits)
        _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    labels = _common.check_labels(logits, labels)
    counts = _common.check_counts(class_counts, logits)
    temperature = _common.scalar("temperature", temperature, logits.dtype, above=0)
    rows = _common.row_mask(where, labels.shape)
    num_classes = logits.shape[-1]
    # Differences from the largest count are exactly 0 for equal counts, so rounding cannot break
    # ties.
    excess = counts - counts.max()
    majority = num_classes * excess > excess.sum()
    others = ~_common.one_hot(labels, num_classes)
    student = _common.zero_rows(logits, rows) / temperature
    target = _common.zero_rows(jax.lax.stop_gradient(teacher), rows) / temperature
    loss = temperature**2 * _common.kl_divergence(target, student, others & ~majority, others)
    return _common.zero_rows(loss, rows)


def distillation(
    logits: ArrayLike,
    teacher_logits: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the divergence of the student from the teacher (FedDF, FedBE, FEDIC).

    .. math::
        \ell = \mathrm{KL}(\mathrm{softmax}(g / T) \,\Vert\, \mathrm{softmax}(f / T))

    There is no factor :math:`T^2`. If the teacher is given as probabilities, pass their logarithms.

    Args:
        logits: the student's unnormalised scores ``[..., C]``.
        teacher_logits: the teacher's scores ``[..., C]``.
        temperature: T, above 0.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, teacher = jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])
        >>> loss = losses.distillation(logits, teacher, temperature=2.0)
        >>> print(np.asarray(loss).round(4))
        [0.1225]

    References:
        Lin et al., `Ensemble Distillation for Robust Model Fusion in Federated Learning
        <https://arxiv.org/abs/2006.07242>`_, 2020.
    """
    logits, teacher = _common.promote_floats(logits=logits, teacher_logits=teacher_logits)
    _common.check_vectors("logits", logits)
    _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    temperature = _common.scalar("temperature", temperature, logits.dtype, above=0)
    rows = _common.row_mask(where, logits.shape[:-1])
    student = _common.zero_rows(logits, rows) / temperature
    target = _common.zero_rows(jax.lax.stop_gradient(teacher), rows) / temperature
    return _common.zero_rows(_common.kl_divergence(target, student), rows)
