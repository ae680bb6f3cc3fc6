"""The distance between features and the prototypes of their classes (FedProto)."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common


def prototype_distance(
    features: ArrayLike,
    labels: ArrayLike,
    prototypes: ArrayLike,
    present: ArrayLike,
    *,
    form: _common.Form = "code",
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the squared distance between features and their class's prototype (FedProto).

    .. math::
        \ell = \frac{1}{D} \lVert h - p_y \rVert^2

    The paper sums over the dimensions of the features, whereas the authors' code takes their mean.
    The same weight is therefore D times as strong in the form of the paper.

    Args:
        features: h ``[..., D]``.
        labels: integer classes ``[...]``. A row whose class has no prototype has a loss of 0.
        prototypes: p ``[C, D]``; no gradient flows to them.
        present: which classes have a prototype ``[C]``; the other rows of ``prototypes`` are
            ignored.
        form: ``"code"`` for the mean over the dimensions, ``"paper"`` for their sum.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> from fedjax_skew import losses
        >>> features, prototypes = jnp.array([[1.0, 2.0], [5.0, 5.0]]), jnp.zeros((2, 2))
        >>> labels, present = jnp.array([0, 1]), jnp.array([True, False])
        >>> print(losses.prototype_distance(features, labels, prototypes, present))
        [2.5 0. ]

    References:
        Tan et al., `FedProto: Federated Prototype Learning across Heterogeneous Clients
        <https://arxiv.org/abs/2105.00243>`_, 2022.
    """
    _common.check_form(form)
    features, prototypes = _common.promote_floats(features=features, prototypes=prototypes)
    labels = _common.check_labels(features, labels, "features")
    _common.check_rank("prototypes", prototypes, 2)
    num_classes, width = prototypes.shape[0], features.shape[-1]
    _common.check_shape("prototypes", prototypes, (num_classes, width), "classes, features' width")
    present = _common.check_present(present, (num_classes,))
    rows = _common.row_mask(where, labels.shape)
    prototypes = jax.lax.stop_gradient(jnp.where(present[:, None], prototypes, 0))
    member = _common.one_hot(labels, num_classes) & present
    own = jnp.matmul(member.astype(features.dtype), prototypes, precision=_common.PRECISE)
    square = jnp.square(_common.zero_rows(features, rows) - own).sum(axis=-1)
    loss = square / width if form == "code" else square
    return _common.zero_rows(loss, rows & member.any(axis=-1))
