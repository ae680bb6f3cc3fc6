"""Distillation losses of the baselines: FedNTD, FedLMD, and the server's ensemble distillation.

The teacher is a constant everywhere: no gradient flows to it.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def not_true_distillation(
    logits: ArrayLike, teacher_logits: ArrayLike, labels: ArrayLike, *, temperature: float = 1.0
) -> jax.Array:
    r"""Divergence from the teacher among all classes but the true one (FedNTD).

    .. math::
        \ell = T^2\, \mathrm{KL}(\tilde q^g \,\Vert\, \tilde q), \qquad
        \tilde q = \mathrm{softmax}_{c \ne y}(f / T)

    Args:
        logits: unnormalised scores ``[..., C]``.
        teacher_logits: the global model's scores ``[..., C]``.
        labels: integer classes ``[...]``.
        temperature: T.

    Returns:
        The loss of each example ``[...]``; 0 with two classes.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, teacher = jnp.array([[5.0, 1.0, 0.0]]), jnp.array([[0.0, 0.0, 1.0]])
        >>> loss = losses.not_true_distillation(logits, teacher, jnp.array([0]))
        >>> print(np.asarray(loss).round(4))
        [0.4621]

    References:
        Lee et al., `Preservation of the Global Knowledge by Not-True Distillation in Federated
        Learning <https://arxiv.org/abs/2106.03097>`_, 2022.
    """
    logits, teacher = _common.floats(logits=logits, teacher_logits=teacher_logits)
    labels = _common.batch(logits, labels)
    _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    _common.check_positive(temperature=temperature)
    others = ~_common.one_hot(labels, logits.shape[-1])
    target = jax.lax.stop_gradient(teacher) / temperature
    return temperature**2 * _common.kl_divergence(target, logits / temperature, others, others)


def label_masking_distillation(
    logits: ArrayLike,
    teacher_logits: ArrayLike | None,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    temperature: float = 1.0,
    teacher_free: bool = False,
) -> jax.Array:
    r"""Divergence from a teacher that is shown only the minority classes (FedLMD, FedLMD-Tf).

    .. math::
        \ell = T^2\, \mathrm{KL}(\tilde q^g \,\Vert\, \tilde q),

    where :math:`\tilde q` is the student's softmax of :math:`f / T` without the true class, and
    :math:`\tilde q^g` the teacher's without the true class and without the majority classes, those
    with more samples than the mean of all classes. Equal counts give :func:`not_true_distillation`.

    Args:
        logits: unnormalised scores ``[..., C]``.
        teacher_logits: the global model's scores ``[..., C]``; unused, and may be None, if
            ``teacher_free``.
        labels: integer classes ``[...]``.
        class_counts: this client's samples of each class ``[C]``.
        temperature: T.
        teacher_free: replace the teacher by a uniform distribution over the same classes.

    Returns:
        The loss of each example ``[...]``; 0 where no minority class is left.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, teacher = jnp.array([[5.0, 1.0, 0.0, 2.0]]), jnp.array([[0.0, 0.0, 1.0, 0.0]])
        >>> labels, counts = jnp.array([0]), jnp.array([1, 9, 0, 2])
        >>> loss = losses.label_masking_distillation(logits, teacher, labels, counts)
        >>> print(np.asarray(loss).round(4))
        [1.2875]

    References:
        Lu et al., `Federated Learning with Label-Masking Distillation
        <https://github.com/wnma3mz/FedLMD>`_, ACM Multimedia 2023.
    """
    if teacher_free:
        (logits,) = _common.floats(logits=logits)
        teacher = jnp.zeros_like(logits)
    else:
        if teacher_logits is None:
            raise ValueError("teacher_logits must be an array unless teacher_free=True, got None.")
        logits, teacher = _common.floats(logits=logits, teacher_logits=teacher_logits)
        _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    labels = _common.batch(logits, labels)
    counts = _common.counts_like(class_counts, logits)
    _common.check_positive(temperature=temperature)
    num_classes = logits.shape[-1]
    # Distances to the largest count are exactly 0 for equal counts, so ties survive rounding.
    excess = counts - counts.max()
    majority = num_classes * excess > excess.sum()
    others = ~_common.one_hot(labels, num_classes)
    target = jax.lax.stop_gradient(teacher) / temperature
    divergence = _common.kl_divergence(target, logits / temperature, others & ~majority, others)
    return temperature**2 * divergence


def distillation(
    logits: ArrayLike, teacher_logits: ArrayLike, *, temperature: float = 1.0
) -> jax.Array:
    r"""Divergence of the student from the teacher, as FedDF, FedBE and FEDIC use it.

    .. math::
        \ell = \mathrm{KL}(\mathrm{softmax}(g / T) \,\Vert\, \mathrm{softmax}(f / T))

    There is no factor :math:`T^2`. A teacher given as probabilities enters through its logarithm.

    Args:
        logits: the student's unnormalised scores ``[..., C]``.
        teacher_logits: the teacher's scores ``[..., C]``.
        temperature: T.

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
    logits, teacher = _common.floats(logits=logits, teacher_logits=teacher_logits)
    if logits.ndim < 1:
        raise ValueError(f"logits must end in the class axis, got shape {logits.shape}.")
    _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    _common.check_positive(temperature=temperature)
    target = jax.lax.stop_gradient(teacher) / temperature
    return _common.kl_divergence(target, logits / temperature)
