"""FedGR: an unbalanced softmax for the clients and a gravitation regulariser for the server."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_skew.losses import _common

UnbalancedForm = Literal["paper", "code", "normalized", "sqrt"]


def unbalanced_softmax(
    logits: ArrayLike,
    labels: ArrayLike,
    class_counts: ArrayLike,
    *,
    form: UnbalancedForm = "sqrt",
    where: ArrayLike | None = None,
) -> jax.Array:
    r"""Computes the cross-entropy of logits scaled up for rare classes (FedGR, eqs. 3, 4).

    .. math::
        \ell = -\log \frac{e^{\gamma_y f_y}}{\sum_{c: n_c > 0} e^{\gamma_c f_c}}

    The factor :math:`\gamma_c` depends on the form, with :math:`C_k` the number of classes present:

    - ``"paper"``: :math:`N / n_c`, as printed.
    - ``"code"``: :math:`n_{min} / n_c`, with :math:`n_{min}` the smallest count of a class present;
      vacant classes stay in the softmax with the factor :math:`n_{min} / (4\, n_{max})`.
    - ``"normalized"``: :math:`N / (C_k n_c)`, whose mean over the client's samples is 1.
    - ``"sqrt"``: :math:`\sqrt{N / (C_k n_c)}`.

    The printed factor can exceed 100 for a rare class, which makes training unstable at large
    learning rates. The authors' code divides it by its largest value, so that common classes hardly
    learn.

    Args:
        logits: unnormalised scores ``[..., C]``, from a head without bias.
        labels: integer classes ``[...]``. A label of a vacant class counts as one sample of it.
        class_counts: the client's number of samples per class ``[C]``.
        form: the variant of the factor, one of the list above.
        where: rows to include ``[...]``; all by default.

    Returns:
        The loss of each example ``[...]``.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> logits, labels = jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]]), jnp.array([0, 1])
        >>> counts = jnp.array([3, 1, 0])
        >>> for form in ("paper", "code", "normalized", "sqrt"):
        ...     loss = losses.unbalanced_softmax(logits, labels, counts, form=form)
        ...     print(np.asarray(loss).round(4))
        [0.234  0.0181]
        [0.9412 0.5892]
        [0.4144 0.1269]
        [0.366  0.2176]

    References:
        Guo et al., `FedGR: Federated Learning with Gravitation Regulation for Double Imbalance
        Distribution <https://doi.org/10.1007/978-3-031-30637-2_47>`_, 2023.
    """
    _common.check_form(form, UnbalancedForm)
    (logits,) = _common.promote_floats(logits=logits)
    labels = _common.check_labels(logits, labels)
    counts = _common.check_counts(class_counts, logits)
    rows = _common.row_mask(where, labels.shape)
    present = counts > 0
    positive = jnp.where(present, counts, 1)
    number = jnp.maximum(present.sum(dtype=counts.dtype), 1)
    if form == "paper":
        factor = counts.sum() / positive
    elif form == "normalized":
        factor = counts.sum() / (number * positive)
    elif form == "sqrt":
        factor = _common.safe_sqrt(counts.sum() / (number * positive))
    else:
        largest = jnp.where(present.any(), counts.max(), 1)
        smallest = jnp.where(present, counts, largest).min()
        factor = smallest * jnp.where(present, 1 / positive, 0.25 / largest)
    keep = None if form == "code" else present
    scaled = factor * _common.zero_rows(logits, rows)
    return _common.zero_rows(_common.negative_log_likelihood(scaled, labels, keep), rows)


def gravitation(heads: ArrayLike, present: ArrayLike) -> jax.Array:
    r"""Attracts head rows of equal classes across clients and repels the others (FedGR, eq. 9).

    With :math:`v = \mathrm{sg}(u_i^k)` the head row of class i of client k without gradient,

    .. math::
        L = -\sum_k \sum_{i \in P_k} \Big[
        \log \frac{\sum_{z \ne k,\, i \in P_z} e^{u_i^z \cdot v}}
                  {\sum_{z \ne k} \sum_{j \in P_z} e^{u_j^z \cdot v}}
        + \log \frac{e^{v \cdot v}}
                    {e^{v \cdot v} + \sum_{z \ne k} \sum_{j \in P_z, j \ne i} e^{u_j^z \cdot v}}
        \Big].

    The first term is omitted where no other client holds the class. The largest intermediate array
    is the matrix of all dot products, ``[K * C, K * C]``.

    Args:
        heads: head rows of the clients ``[K, C, D]``.
        present: which classes each client holds ``[K, C]``.

    Returns:
        A scalar; 0 if there is a single client.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from fedjax_skew import losses
        >>> heads = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]])
        >>> loss = losses.gravitation(heads, jnp.array([[1, 1], [1, 0]]))
        >>> print(np.asarray(loss).round(4))
        0.9398

    References:
        Guo et al., `FedGR: Federated Learning with Gravitation Regulation for Double Imbalance
        Distribution <https://doi.org/10.1007/978-3-031-30637-2_47>`_, 2023.
    """
    (heads,) = _common.promote_floats(heads=heads)
    _common.check_rank("heads", heads, 3)
    num_clients, num_classes, width = heads.shape
    held = _common.check_present(present, (num_clients, num_classes)).reshape(-1)
    moving = jnp.where(held[:, None], heads.reshape(-1, width), 0)
    anchors = jax.lax.stop_gradient(moving)
    dots = jnp.matmul(anchors, moving.T, precision=_common.PRECISE)
    client, label = jnp.divmod(jnp.arange(num_clients * num_classes), num_classes)
    other = (client[:, None] != client) & held
    same = label[:, None] == label
    attraction = _common.logsumexp(_common.log_softmax(dots, other), other & same)
    # log(e^a / (e^a + e^b)) = -softplus(b - a) holds for any size of a and b.
    own = jnp.square(anchors).sum(axis=-1)
    rivals = other & ~same
    repulsion = -jax.nn.softplus(_common.logsumexp(dots - own[:, None], rivals))
    repulsion = jnp.where(rivals.any(axis=-1), repulsion, 0)
    return -jnp.where(held, attraction + repulsion, 0).sum()
