"""FedLC-LT, server's part: ensemble of the clients' logits and calibrated distillation.

Everything here carries gradients: r, a and b are learnt on the server's auxiliary data.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def class_query(logits: ArrayLike, scale: ArrayLike, bias: ArrayLike) -> jax.Array:
    r"""Calibrates the global logits class by class (FedLC-LT, eq. 7): :math:`a_c f_c + b_c`.

    Args:
        logits: unnormalised scores ``[..., C]``.
        scale: a ``[C]``, learnable.
        bias: b ``[C]``, learnable.

    Returns:
        Calibrated logits ``[..., C]``.

    Example:
        >>> import jax.numpy as jnp
        >>> from fedjax_skew import losses
        >>> print(losses.class_query(jnp.array([1.0, 2.0]), jnp.array([2.0, 1.0]), jnp.ones(2)))
        [3. 3.]

    References:
        Wang, Wang and Shen, Logit Calibration for Non-IID and Long-Tailed Data in Federated
        Learning, 2022.
    """
    logits, scale, bias = _common.promote_floats(logits=logits, scale=scale, bias=bias)
    _common.check_vectors("logits", logits)
    _common.check_shape("scale", scale, logits.shape[-1:], "one per class")
    _common.check_shape("bias", bias, logits.shape[-1:], "one per class")
    return scale * logits + bias


def ensemble_logits(
    client_logits: ArrayLike,
    weights: ArrayLike,
    r: ArrayLike,
    client_norms: ArrayLike,
    *,
    lam: ArrayLike = 1e-3,
) -> jax.Array:
    r"""Weighs the clients' logits sample by sample (FedLC-LT, eqs. 5, 6).

    .. math::
        \phi_{ens} = \sum_k \frac{n_k}{N} e_k f_k, \qquad
        e = \mathrm{softmax}_k\big(\mathrm{sigmoid}(f_k \cdot r_k)
        + \lambda \lVert w_k \rVert^2\big)

    Args:
        client_logits: scores of each client's model ``[K, B, C]``.
        weights: share of each client's samples ``[K]``.
        r: learnable direction of each client ``[K, C]``.
        client_norms: :math:`\lVert w_k \rVert`, the length of each client's parameters ``[K]``.
        lam: weight of the squared length.

    Returns:
        Ensemble logits ``[B, C]``.

    Example:
        >>> import jax.numpy as jnp
        >>> from fedjax_skew import losses
        >>> client_logits = jnp.array([[[2.0, 0.0]], [[0.0, 4.0]]])
        >>> half, r = jnp.array([0.5, 0.5]), jnp.zeros((2, 2))
        >>> print(losses.ensemble_logits(client_logits, half, r, jnp.ones(2)))
        [[0.5 1. ]]

    References:
        Wang, Wang and Shen, Logit Calibration for Non-IID and Long-Tailed Data in Federated
        Learning, 2022.
    """
    logits, weights, r, norms = _common.promote_floats(
        client_logits=client_logits, weights=weights, r=r, client_norms=client_norms
    )
    _common.check_rank("client_logits", logits, 3)
    size, _, num_classes = logits.shape
    _common.check_shape("weights", weights, (size,), "one per client")
    _common.check_shape("r", r, (size, num_classes), "clients, classes")
    _common.check_shape("client_norms", norms, (size,), "one per client")
    lam = _common.scalar("lam", lam, logits.dtype)
    match = jax.nn.sigmoid((logits * r[:, None]).sum(axis=-1))
    share = jax.nn.softmax(match + lam * jnp.square(norms)[:, None], axis=0)
    return ((weights[:, None] * share)[..., None] * logits).sum(axis=0)


def normalized_distillation(
    logits: ArrayLike, teacher_logits: ArrayLike, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""Divergence of two logit vectors after scaling both to length 1 (FedLC-LT, eq. 8).

    .. math::
        \ell = \mathrm{KL}\Big(\mathrm{softmax}\frac{g}{\lVert g \rVert} \,\Big\Vert\,
        \mathrm{softmax}\frac{f}{\lVert f \rVert}\Big)

    Gradients flow to both sides, because the ensemble that teaches has learnable parts; stop them
    at the call where it should be a constant.

    Args:
        logits: f, the calibrated global logits ``[..., C]``.
        teacher_logits: g, the ensemble logits ``[..., C]``.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> student, teacher = jnp.array([[3.0, 0.0]]), jnp.array([[0.0, 7.0]])
        >>> loss = losses.normalized_distillation(student, teacher)
        >>> print(np.asarray(loss).round(4))
        [0.4621]

    References:
        Wang, Wang and Shen, Logit Calibration for Non-IID and Long-Tailed Data in Federated
        Learning, 2022.
    """
    logits, teacher = _common.promote_floats(logits=logits, teacher_logits=teacher_logits)
    _common.check_vectors("logits", logits)
    _common.check_shape("teacher_logits", teacher, logits.shape, "that of logits")
    rows = _common.row_mask(where, logits.shape[:-1])
    target = _common.unit(_common.zero_rows(teacher, rows))
    student = _common.unit(_common.zero_rows(logits, rows))
    return _common.zero_rows(_common.kl_divergence(target, student), rows)
