"""Contrastive losses on features: between models (MOON) and between samples (FedRCL)."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def model_contrastive(
    features: ArrayLike,
    global_features: ArrayLike,
    previous_features: ArrayLike,
    *,
    temperature: ArrayLike = 0.5,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Attracts features to the global model's and repels them from the previous ones (MOON).

    .. math::
        \ell = -\log \frac{e^{\cos(z, z_g) / T}}{e^{\cos(z, z_g) / T} + e^{\cos(z, z_p) / T}}

    Args:
        features: :math:`z`, the features of the model in training ``[..., D]``.
        global_features: :math:`z_g`, the features of the round's global model ``[..., D]``; no
            gradient flows to them.
        previous_features: :math:`z_p`, the features of the client's previous local model
            ``[..., D]``; no gradient flows to them. A client that has not participated yet has no
            previous model; the caller sets its loss to 0.
        temperature: T, above 0.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> z, near, far = jnp.array([[1.0, 0.0]]), jnp.array([[2.0, 0.0]]), jnp.array([[0.0, 1.0]])
        >>> loss = losses.model_contrastive(z, near, far)
        >>> print(np.asarray(loss).round(4))
        [0.1269]

    References:
        Li et al., `Model-Contrastive Federated Learning <https://arxiv.org/abs/2103.16257>`_, 2021.
    """
    z, z_global, z_previous = _common.promote_floats(
        features=features, global_features=global_features, previous_features=previous_features
    )
    _common.check_vectors("features", z)
    _common.check_shape("global_features", z_global, z.shape, "that of features")
    _common.check_shape("previous_features", z_previous, z.shape, "that of features")
    temperature = _common.scalar("temperature", temperature, z.dtype, above=0)
    rows = _common.row_mask(where, z.shape[:-1])
    z = _common.unit(_common.zero_rows(z, rows))
    z_global = _common.zero_rows(jax.lax.stop_gradient(z_global), rows)
    z_previous = _common.zero_rows(jax.lax.stop_gradient(z_previous), rows)
    near = (z * _common.unit(z_global)).sum(axis=-1)
    far = (z * _common.unit(z_previous)).sum(axis=-1)
    return _common.zero_rows(jax.nn.softplus((far - near) / temperature), rows)


def supervised_contrastive(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    temperature: ArrayLike = 0.05,
    num_negatives: int = 2,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Contrasts the hardest pairs of a batch (FedRCL, first term, as in the authors' code).

    .. math::
        L = -\frac{1}{B} \sum_i
        \log \frac{e^{p_i / T}}{e^{p_i / T} + \sum_{j \in N_i} e^{s_{ij} / T}},

    where :math:`s_{ij}` is the cosine between two features, :math:`p_i` is the smallest cosine
    within the class of row i, including the row itself, and :math:`N_i` are the most similar rows
    of other classes.

    Args:
        features: ``[B, D]``; gradients flow to both sides of a pair.
        labels: integer classes ``[B]``.
        temperature: T, above 0.
        num_negatives: size of :math:`N_i`, at most B.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar, the mean over the rows included. The loss of a row is 0 if the batch has no row of
        another class.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> features, labels = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([0, 1])
        >>> loss = losses.supervised_contrastive(features, labels, temperature=1.0)
        >>> print(np.asarray(loss).round(4))
        0.3133

    References:
        Seo et al., `Relaxed Contrastive Learning for Federated Learning
        <https://arxiv.org/abs/2401.04928>`_, 2024.
    """
    cosine, same, rows = _cosines(features, labels, where)
    temperature = _common.scalar("temperature", temperature, cosine.dtype, above=0)
    _common.check_count("num_negatives", num_negatives, 1)
    positive = jnp.where(same, cosine, 1).min(axis=-1, keepdims=True)
    other = rows[:, None] & rows & ~same
    size = min(num_negatives, cosine.shape[0])
    negatives, _ = jax.lax.top_k(jnp.where(other, cosine, -jnp.inf), size)
    found = jnp.isfinite(negatives)
    harder = (jnp.where(found, negatives, 0) - positive) / temperature
    loss = jax.nn.softplus(_common.logsumexp(harder, found))
    return _common.masked_mean(jnp.where(found.any(axis=-1), loss, 0), rows)


def divergence_penalty(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    temperature: ArrayLike = 0.05,
    threshold: ArrayLike = 0.7,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Pushes collapsed features of one class apart (FedRCL, second term, as in the authors' code).

    .. math::
        L = \frac{1}{B} \sum_{i: q_i \ge \lambda} \log\big(1 + e^{(q_i - 1) / T}\big),

    where :math:`q_i` is the smallest cosine between row i and another row of its class. The term is
    added to :func:`supervised_contrastive`, which it relaxes.

    Args:
        features: ``[B, D]``; gradients flow to both sides of a pair.
        labels: integer classes ``[B]``.
        temperature: T, above 0.
        threshold: :math:`\lambda`, the cosine at and above which a class counts as collapsed.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar, the mean over the rows included. The loss of a row is 0 if it is the only one of
        its class.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> features, labels = jnp.array([[1.0, 0.0], [4.0, 3.0], [0.0, 1.0]]), jnp.array([0, 0, 1])
        >>> loss = losses.divergence_penalty(features, labels, temperature=1.0)
        >>> print(np.asarray(loss).round(4))
        0.3988

    References:
        Seo et al., `Relaxed Contrastive Learning for Federated Learning
        <https://arxiv.org/abs/2401.04928>`_, 2024.
    """
    cosine, same, rows = _cosines(features, labels, where)
    temperature = _common.scalar("temperature", temperature, cosine.dtype, above=0)
    threshold = _common.scalar("threshold", threshold, cosine.dtype)
    partner = same & ~jnp.eye(cosine.shape[0], dtype=bool)
    farthest = jnp.where(partner, cosine, 1).min(axis=-1)
    collapsed = partner.any(axis=-1) & (farthest >= threshold)
    loss = jnp.where(collapsed, jax.nn.softplus((farthest - 1) / temperature), 0)
    return _common.masked_mean(loss, rows)


def _cosines(
    features: ArrayLike, labels: ArrayLike, where: ArrayLike | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns cosines ``[B, B]``, the mask of same-class pairs ``[B, B]`` and of rows ``[B]``."""
    (features,) = _common.promote_floats(features=features)
    _common.check_rank("features", features, 2)
    labels = _common.check_labels(features, labels, "features")
    rows = _common.row_mask(where, labels.shape) & (labels >= 0)
    unit = _common.unit(_common.zero_rows(features, rows))
    cosine = jnp.matmul(unit, unit.T, precision=_common.PRECISE)
    return cosine, (labels[:, None] == labels) & rows[:, None] & rows, rows
