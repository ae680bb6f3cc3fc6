"""FedLC-LT on the server: an ensemble of the clients' logits and calibrated distillation.

Gradients flow to all array arguments, because r, a and b are learnt on the server's auxiliary data.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def class_query(logits: ArrayLike, scale: ArrayLike, bias: ArrayLike) -> jax.Array:
    r"""Calibrates the global logits class by class (FedLC-LT, eq. 7): :math:`a_c f_c + b_c`.

    Args:
        logits: unnormalised scores ``[..., C]``.
        scale: the learnable factor a ``[C]``.
        bias: the learnable offset b ``[C]``.

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
    r"""Computes a weighted sum of the clients' logits for each sample (FedLC-LT, eqs. 5, 6).

    .. math::
        \phi_{ens} = \sum_k \frac{n_k}{N} e_k f_k, \qquad
        e = \mathrm{softmax}_k\big(\mathrm{sigmoid}(f_k \cdot r_k)
        + \lambda \lVert w_k \rVert^2\big)

    Args:
        client_logits: scores of each client's model ``[K, B, C]``.
        weights: the share :math:`n_k / N` of each client's samples ``[K]``.
        r: learnable direction of each client ``[K, C]``.
        client_norms: :math:`\lVert w_k \rVert`, the norm of each client's parameters ``[K]``.
        lam: the weight :math:`\lambda` of the squared norm.

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
    r"""Computes the divergence of two logit vectors scaled to length 1 (FedLC-LT, eq. 8).

    .. math::
        \ell = \mathrm{KL}\Big(\mathrm{softmax}\frac{g}{\lVert g \rVert} \,\Big\Vert\,
        \mathrm{softmax}\frac{f}{\lVert f \rVert}\Big)

    Gradients flow to both arguments, because the ensemble that acts as the teacher has learnable
    parameters. Apply ``jax.lax.stop_gradient`` to the teacher where it should be a constant.

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
