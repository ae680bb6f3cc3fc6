"""Contrastive losses on features: MOON's between models."""

import jax
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
    r"""Draws features to the global model's, away from the previous local model's (MOON).

    .. math::
        \ell = -\log \frac{e^{\cos(z, z_g) / T}}{e^{\cos(z, z_g) / T} + e^{\cos(z, z_p) / T}}

    Args:
        features: z, of the model in training ``[..., D]``.
        global_features: :math:`z_g`, of the round's global model ``[..., D]``; no gradient flows to
            them.
        previous_features: :math:`z_p`, of the client's previous local model ``[..., D]``; no
            gradient flows to them. A client that has not taken part yet has none; the caller sets
            its loss to 0.
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
