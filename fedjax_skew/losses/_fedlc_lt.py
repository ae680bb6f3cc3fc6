"""FedLC-LT on the clients: synthetic logits from similar clients, and the losses that use them.

The paper calls its method FedLC; the suffix distinguishes it from the other method of that name.

A client's average logits are ``[C, C]``: row c is the mean logit vector of its samples of class c.
The rows of classes that it lacks are masked by ``present``, or zero. Equations are numbered as in
the paper. Where the paper writes ``L_KL(a, b)`` with b the teacher, the divergence is KL(b || a),
as is usual in distillation. The server's part is in ``_fedlc_lt_server.py``.
"""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def logit_wasserstein(
    mean: ArrayLike, var: ArrayLike, present: ArrayLike, *, normalize: bool = True
) -> jax.Array:
    r"""Computes distances between the clients' class-wise logit distributions (FedLC-LT, eq. 1).

    .. math::
        d_{ij} = \sum_c \sqrt{\lVert \mu_i^c - \mu_j^c \rVert^2
        + \lVert \sqrt{\sigma_i^c} - \sqrt{\sigma_j^c} \rVert^2},

    over the classes that both clients hold. Each summand is the Wasserstein distance between two
    Gaussians with diagonal covariance.

    Args:
        mean: average logits of each class ``[K, C, C]``.
        var: variances of the logits of each class ``[K, C, C]``.
        present: which classes each client holds ``[K, C]``.
        normalize: if True, the sum is divided by the number of shared classes, so that clients that
            share few classes do not appear close, and the distance between clients that share none
            is infinite. If False, the plain sum is returned.

    Returns:
        Distances ``[K, K]``.

    Example:
        >>> import jax.numpy as jnp
        >>> from fedjax_skew import losses
        >>> mean = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[4.0, 0.0], [0.0, 1.0]]])
        >>> var = jnp.array([[[4.0, 0.0], [1.0, 1.0]], [[4.0, 16.0], [1.0, 1.0]]])
        >>> print(losses.logit_wasserstein(mean, var, jnp.ones((2, 2))))
        [[0.  2.5]
         [2.5 0. ]]

    References:
        Wang, Wang and Shen, Logit Calibration for Non-IID and Long-Tailed Data in Federated
        Learning, 2022.
    """
    mean, var = _common.promote_floats(mean=mean, var=var)
    _common.check_rank("mean", mean, 3)
    _common.check_shape("var", var, mean.shape, "that of mean")
    held = _common.check_present(present, mean.shape[:2])
    spread = _common.safe_sqrt(var)

    def from_one(client: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        own_mean, own_spread, own_held = client
        square = jnp.square(mean - own_mean) + jnp.square(spread - own_spread)
        shared = held & own_held
        apart = jnp.where(shared, _common.safe_sqrt(square.sum(axis=-1)), 0).sum(axis=-1)
        if not normalize:
            return apart
        number = shared.sum(axis=-1, dtype=mean.dtype)
        return jnp.where(number > 0, apart / jnp.maximum(number, 1), jnp.inf)

    # One client at a time, because all pairs at once would need an array of size K * K * C * C.
    return jax.lax.map(from_one, (mean, spread, held))


def synthetic_logits(
    mean_logits: ArrayLike, distances: ArrayLike, *, num_neighbors: int, eps: ArrayLike = 1e-12
) -> jax.Array:
    r"""Combines the average logits of each client's nearest neighbours (FedLC-LT, eq. 2).

    .. math::
        \phi_{syn} = \frac{1}{M} \frac{\sum_m \phi_m}{\sqrt{\sum_m \phi_m^2}}, \text{ elementwise}

    Neighbours at an infinite distance are excluded; M is the number of those that remain.

    Args:
        mean_logits: average logits of the clients ``[K, ...]``.
        distances: distances between the clients ``[K, K]``; the diagonal is ignored.
        num_neighbors: the largest value of M, at most K - 1.
        eps: constant above 0, added under the root so that logits of 0 give 0.

    Returns:
        Synthetic logits of each client ``[K, ...]``; 0 for a client without neighbours.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> mean_logits = jnp.array([[9.0, 9.0], [3.0, 1.0], [4.0, -1.0]])
        >>> distances = jnp.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
        >>> synthetic = losses.synthetic_logits(mean_logits, distances, num_neighbors=2)
        >>> print(np.asarray(synthetic[0]).round(4))
        [0.7 0. ]

    References:
        Wang, Wang and Shen, Logit Calibration for Non-IID and Long-Tailed Data in Federated
        Learning, 2022.
    """
    (values,) = _common.promote_floats(mean_logits=mean_logits)
    distances = jnp.asarray(distances)
    if values.ndim < 1:
        raise ValueError(f"mean_logits must have a client axis, got shape {values.shape}.")
    size = values.shape[0]
    _common.check_shape("distances", distances, (size, size), "clients, clients")
    _common.check_count("num_neighbors", num_neighbors, 1, size - 1)
    eps = _common.scalar("eps", eps, values.dtype, above=0)
    reach = jnp.where(jnp.eye(size, dtype=bool), jnp.inf, distances)
    negated, nearest = jax.lax.top_k(-reach, num_neighbors)
    known = jnp.isfinite(negated)
    chosen = jax.nn.one_hot(nearest, size, dtype=values.dtype) * known[..., None]
    chosen = chosen.sum(axis=1)
    flat = values.reshape(size, -1)
    total = jnp.matmul(chosen, flat, precision=_common.PRECISE)
    square = jnp.matmul(chosen, jnp.square(flat), precision=_common.PRECISE)
    number = jnp.maximum(known.sum(axis=1, keepdims=True), 1)
    return (total * jax.lax.rsqrt(square + eps) / number).reshape(values.shape)


def local_logit_calibration(
    logits: ArrayLike,
    labels: ArrayLike,
    synthetic: ArrayLike,
    *,
    temperature: ArrayLike = 4.0,
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the divergence of a batch's average logits from the synthetic ones (eq. 3).

    .. math::
        L = \frac{1}{|Y|} \sum_{c \in Y} \mathrm{KL}\big(\mathrm{softmax}(\phi_{syn}^c / t)
        \,\Vert\, \mathrm{softmax}(\phi^c / t)\big),

    where Y is the set of classes in the batch and :math:`\phi^c` is the mean logit vector of its
    samples of class c.

    Args:
        logits: unnormalised scores ``[B, C]``.
        labels: integer classes ``[B]``.
        synthetic: synthetic logits ``[C, C]``; no gradient flows to them.
        temperature: t, above 0.
        where: rows to include ``[B]``; all by default.

    Returns:
        A scalar; 0 if no row is included.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, labels = jnp.array([[4.0, 0.0], [4.0, 0.0]]), jnp.array([0, 0])
        >>> loss = losses.local_logit_calibration(logits, labels, jnp.zeros((2, 2)))
        >>> print(np.asarray(loss).round(4))
        0.1201

    References:
        Wang, Wang and Shen, Logit Calibration for Non-IID and Long-Tailed Data in Federated
        Learning, 2022.
    """
    logits, synthetic = _common.promote_floats(logits=logits, synthetic=synthetic)
    _common.check_rank("logits", logits, 2)
    labels = _common.check_labels(logits, labels)
    size, num_classes = logits.shape
    _common.check_shape("synthetic", synthetic, (num_classes, num_classes), "classes, classes")
    temperature = _common.scalar("temperature", temperature, logits.dtype, above=0)
    valid = _common.row_mask(where, (size,))[:, None]
    member = _common.one_hot(labels, num_classes) & valid
    sizes = member.sum(axis=0, dtype=logits.dtype)
    values = jnp.where(valid, logits, 0)
    total = jnp.matmul(member.T.astype(logits.dtype), values, precision=_common.PRECISE)
    average = total / jnp.maximum(sizes, 1)[:, None]
    target = jax.lax.stop_gradient(synthetic)
    divergence = _common.kl_divergence(target / temperature, average / temperature)
    return _common.masked_mean(divergence, sizes > 0)


def class_importance_weights(
    local_mean: ArrayLike, synthetic: ArrayLike, present: ArrayLike, *, temperature: ArrayLike = 4.0
) -> jax.Array:
    r"""Computes weights of the classes in the cross-entropy (FedLC-LT, the ratio of eq. 4).

    .. math::
        w_c \propto \mathrm{clip}\Big(\frac{\mathrm{softmax}(\phi_{syn}^c / t)_c}
        {\mathrm{softmax}(\phi^c / t)_c}, 0.1, 10\Big),

    with mean 1 over the classes present. The paper divides the logits themselves, which may be
    negative or zero; their softened probabilities are positive.

    Args:
        local_mean: this client's average logits ``[C, C]``.
        synthetic: synthetic logits ``[C, C]``.
        present: which classes the client holds ``[C]``.
        temperature: t, above 0.

    Returns:
        Weights ``[C]``, through which no gradient flows; 1 for a class that the client lacks.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> local, synthetic = jnp.array([[4.0, 0.0], [0.0, 0.0]]), jnp.zeros((2, 2))
        >>> weights = losses.class_importance_weights(local, synthetic, jnp.array([5, 5]))
        >>> print(np.asarray(weights).round(4))
        [0.8123 1.1877]

    References:
        Wang, Wang and Shen, Logit Calibration for Non-IID and Long-Tailed Data in Federated
        Learning, 2022.
    """
    local, synthetic = _common.promote_floats(local_mean=local_mean, synthetic=synthetic)
    _common.check_rank("local_mean", local, 2)
    size = local.shape[0]
    _common.check_shape("local_mean", local, (size, size), "classes, classes")
    _common.check_shape("synthetic", synthetic, (size, size), "that of local_mean")
    held = _common.check_present(present, (size,))
    temperature = _common.scalar("temperature", temperature, local.dtype, above=0)
    wanted = jnp.diagonal(_common.log_softmax(synthetic / temperature))
    own = jnp.diagonal(_common.log_softmax(local / temperature))
    # Clipping the logarithm rather than the ratio prevents overflow.
    ratio = jnp.exp(jnp.clip(wanted - own, -math.log(10), math.log(10)))
    mean = _common.masked_mean(ratio, held)
    weights = jnp.where(held, ratio / jnp.where(mean > 0, mean, 1), 1)
    return jax.lax.stop_gradient(weights)
