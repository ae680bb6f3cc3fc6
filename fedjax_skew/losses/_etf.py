"""Fixed classifiers: the simplex equiangular tight frame, and logits from normalised features."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def simplex_etf(matrix: ArrayLike) -> jax.Array:
    r"""Computes a simplex equiangular tight frame, the fixed head of FedETF, FedGELA and FedLoGe.

    .. math::
        M = \sqrt{\frac{C}{C - 1}}\; Q \Big( I - \frac{1}{C} 1 1^\top \Big),

    where Q is the orthonormal factor of ``matrix``. The columns have length 1 and sum to 0. Any two
    of them have the cosine :math:`-1 / (C - 1)`, the smallest possible common cosine of C vectors.

    Args:
        matrix: any matrix ``[D, C]`` with :math:`D \ge C \ge 2`; the published implementations draw
            it uniformly from [0, 1). No gradient flows to it.

    Returns:
        The frame ``[D, C]``, one column per class.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> frame = losses.simplex_etf(jax.random.uniform(jax.random.key(0), (8, 3)))
        >>> print(np.abs(np.asarray(frame.T @ frame)).round(4))
        [[1.  0.5 0.5]
         [0.5 1.  0.5]
         [0.5 0.5 1. ]]

    References:
        Papyan, Han and Donoho, `Prevalence of Neural Collapse during the Terminal Phase of Deep
        Learning Training <https://arxiv.org/abs/2008.08186>`_, 2020;
        Li et al., `No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with
        Synthetic and Fixed Classifier <https://arxiv.org/abs/2303.10058>`_, 2023.
    """
    (matrix,) = _common.promote_floats(matrix=matrix)
    _common.check_rank("matrix", matrix, 2)
    width, num_classes = matrix.shape
    if not width >= num_classes >= 2:
        raise ValueError(
            f"matrix must have at least 2 columns and at least as many rows, got {matrix.shape}."
        )
    q, _ = jnp.linalg.qr(jax.lax.stop_gradient(matrix))
    return (num_classes / (num_classes - 1)) ** 0.5 * (q - q.mean(axis=1, keepdims=True))


def cosine_logits(features: ArrayLike, weights: ArrayLike, *, scale: ArrayLike = 1.0) -> jax.Array:
    r"""Computes logits of normalised features (FedETF, FedNH): :math:`s\, h W / \lVert h \rVert`.

    The logits are scaled cosines if the columns of ``weights`` have length 1, as do those of
    :func:`simplex_etf` and FedNH's prototypes. Columns of other lengths are not normalised, so that
    FedGELA can scale the columns of its frame by class.

    Args:
        features: h ``[..., D]``. A vector shorter than 1e-8 has logits of 0.
        weights: W ``[D, C]``, one column per class; gradients flow to them.
        scale: the factor s, which FedETF and FedNH learn.

    Returns:
        Logits ``[..., C]``.

    Example:
        >>> import jax.numpy as jnp
        >>> from fedjax_skew import losses
        >>> weights = jnp.array([[1.0, 0.0], [0.0, 1.0]])
        >>> print(losses.cosine_logits(jnp.array([[3.0, 4.0]]), weights, scale=10.0))
        [[6. 8.]]

    References:
        Li et al., `No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with
        Synthetic and Fixed Classifier <https://arxiv.org/abs/2303.10058>`_, 2023;
        Dai et al., `Tackling Data Heterogeneity in Federated Learning with Class Prototypes
        <https://arxiv.org/abs/2212.02758>`_, 2023.
    """
    features, weights = _common.promote_floats(features=features, weights=weights)
    _common.check_vectors("features", features)
    _common.check_rank("weights", weights, 2)
    width = features.shape[-1]
    _common.check_shape("weights", weights, (width, weights.shape[1]), "width of features, classes")
    scale = _common.scalar("scale", scale, features.dtype)
    return scale * jnp.matmul(_common.unit(features), weights, precision=_common.PRECISE)
