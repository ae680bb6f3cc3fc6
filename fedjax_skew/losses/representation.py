"""Losses of the baselines on features: MOON's contrast and FedMR's manifold reshaping."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def model_contrastive(
    z: ArrayLike, z_global: ArrayLike, z_previous: ArrayLike, *, temperature: float = 0.5
) -> jax.Array:
    r"""Draws representations to the global model's, away from the previous local one's (MOON).

    .. math::
        \ell = -\log \frac{e^{\cos(z, z_g) / T}}{e^{\cos(z, z_g) / T} + e^{\cos(z, z_p) / T}}

    Args:
        z: representations by the model in training ``[..., D]``.
        z_global: those by the round's global model ``[..., D]``; no gradient flows to them.
        z_previous: those by the client's previous local model ``[..., D]``; no gradient either.
            A client that never took part has none; its loss is 0, which the caller sets.
        temperature: T.

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
    z, z_global, z_previous = _common.floats(z=z, z_global=z_global, z_previous=z_previous)
    if z.ndim < 1:
        raise ValueError(f"z must end in the feature axis, got shape {z.shape}.")
    _common.check_shape("z_global", z_global, z.shape, "that of z")
    _common.check_shape("z_previous", z_previous, z.shape, "that of z")
    _common.check_positive(temperature=temperature)
    z = _common.unit(z)
    near = (z * _common.unit(jax.lax.stop_gradient(z_global))).sum(axis=-1)
    far = (z * _common.unit(jax.lax.stop_gradient(z_previous))).sum(axis=-1)
    return jax.nn.softplus((far - near) / temperature)


def manifold_reshaping(
    features: ArrayLike, labels: ArrayLike, num_classes: int, *, where: ArrayLike | None = None
) -> jax.Array:
    r"""Squared correlations of feature columns within each class (FedMR, intra-class term).

    .. math::
        L = \frac{1}{n} \sum_c \frac{1}{D (D - 1)} \sum_{i \ne j} (Z_c^\top Z_c)_{ij}^2,

    where :math:`Z_c` holds the features of class c, less their mean and divided by
    :math:`\sqrt{10^{-8} + s^2}` with :math:`s^2` their unbiased variance, c runs over the classes
    with more than one sample in the batch, and n counts those samples. Mean and variance carry
    gradients. Only a ``[B, B]`` matrix of dot products is formed, no ``[C, D, D]`` one:
    :math:`\sum_{ij} (Z_c^\top Z_c)_{ij}^2` is the sum of squared dot products of the rows.

    Args:
        features: ``[B, D]``.
        labels: integer classes ``[B]``.
        num_classes: C.
        where: rows that count ``[B]``; all by default.

    Returns:
        A scalar; 0 if no class has two samples, or with a single feature.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> features = jnp.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0], [9.0, 9.0]])
        >>> loss = losses.manifold_reshaping(features, jnp.array([0, 0, 0, 1]), 2)
        >>> print(np.asarray(loss).round(4))
        1.0

    References:
        Fan et al., `Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping
        <https://arxiv.org/abs/2405.18983>`_, 2023.
    """
    (features,) = _common.floats(features=features)
    _common.check_rank("features", features, 2)
    labels = _common.batch(features, labels, "features")
    _common.check_count("num_classes", num_classes, 1)
    size, width = features.shape
    if width < 2:
        return jnp.zeros((), features.dtype)
    member = _common.one_hot(labels, num_classes) & _common.rows(where, size)[:, None]
    sizes = member.sum(axis=0, dtype=features.dtype)
    # Rows alone in their class say nothing of its shape.
    member = member & (sizes > 1)
    used = member.any(axis=-1)
    weight = member.astype(features.dtype)

    def class_sum(values: jax.Array) -> jax.Array:
        return jnp.matmul(weight.T, values, precision=_common.PRECISE)

    def of_row(table: jax.Array) -> jax.Array:
        return jnp.matmul(weight, table, precision=_common.PRECISE)

    values = jnp.where(used[:, None], features, 0)
    mean = class_sum(values) / jnp.maximum(sizes, 1)[:, None]
    centered = values - of_row(mean)
    variance = class_sum(jnp.square(centered)) / jnp.maximum(sizes - 1, 1)[:, None]
    standard = centered * jax.lax.rsqrt(1e-8 + of_row(variance))
    dots = jnp.matmul(standard, standard.T, precision=_common.PRECISE)
    together = (labels[:, None] == labels) & used[:, None] & used
    everything = jnp.where(together, jnp.square(dots), 0).sum()
    diagonal = jnp.square(class_sum(jnp.square(standard))).sum()
    number = jnp.maximum(used.sum(dtype=features.dtype), 1)
    return (everything - diagonal) / (width * (width - 1)) / number
