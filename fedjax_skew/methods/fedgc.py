"""FedGC. Niu and Deng, Federated Learning for Face Recognition with Gradient Correction, AAAI
2022.

The paper studies identities that no two clients share, and each client has a private head. This
implementation adapts the method to label skew with shared classes and a single test set:

- A client's softmax covers the classes that it holds, with a head without bias.
- The server averages row c of the head over the clients that hold class c, weighted by their
  samples of the class. A class that no participant holds keeps its row. Everything else is averaged
  as in FedAvg.
- The server then takes one gradient step on the head with step size ``lam lr``, on the loss
  ``sum_i -log( e^{w~_i . w_i} / (e^{w~_i . w_i} + sum_j e^{w_j . w_i}) )``, where no gradient flows
  to ``w~`` and j runs over the classes that some client holds without holding i. Local training
  does not contrast these pairs of classes. Sums are computed in the log domain, because
  ``e^{w . w}`` overflows for long rows.

There is no published code, and the paper does not state its value of ``lam``.
"""

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.losses import balanced_softmax
from fedjax_skew.methods.base import Method, Upload, average


@validated("hparams.fedgc")
def fedgc(*, lam: NonNegative = 1.0, cosine: bool = False) -> Method:
    """Restricts the softmax to local classes and separates classes of different clients.

    Args:
        lam: step size of the correction, as a multiple of the client learning rate; 0 disables it.
        cosine: whether to scale rows to length 1 before they are compared.
    """

    def loss(context):
        # With tau=0 this is the cross-entropy among the classes that the client holds.
        values = balanced_softmax(
            context.outputs.logits, context.batch.labels, context.client.class_counts, tau=0.0
        )
        return context.mean(values)

    def make_upload(client, result):
        moved = result.params["head"]["kernel"] - result.start["head"]["kernel"]
        return Upload(None, None, moved * client.class_counts)

    def server(lam, rnd):
        new = average(rnd)
        counts = jnp.where((rnd.weights > 0)[:, None], rnd.class_counts, 0.0)
        kernel = rnd.params["head"]["kernel"] + rnd.summed / jnp.maximum(counts.sum(0), 1)
        if lam is not None:
            rows = kernel.T
            gradient = jax.grad(correction)(rows, counts > 0, cosine=cosine)
            kernel = (rows - lam * rnd.lr * gradient).T
        head = {**new.params["head"], "kernel": kernel}
        return new._replace(params={**new.params, "head": head})

    return Method(
        "fedgc",
        loss=loss,
        make_upload=make_upload,
        server=Partial(server, lam or None),
        head_bias=False,
        needs_linear_head=True,
    )


def correction(rows: jax.Array, held: jax.Array, *, cosine: bool = False) -> jax.Array:
    """Computes the loss of the server's step on the head.

    Args:
        rows: rows of the head, one per class ``[C, D]``.
        held: bool ``[M, C]``, which client holds which class.
        cosine: whether to scale rows to length 1.

    Returns:
        A scalar; 0 if all clients hold the same classes.
    """
    if cosine:
        rows = rows * jax.lax.rsqrt(jnp.sum(rows * rows, -1, keepdims=True) + 1e-12)
    own = jnp.sum(jax.lax.stop_gradient(rows) * rows, -1)
    dots = jnp.matmul(rows, rows.T, precision="highest")
    apart = jnp.any(held[:, None, :] & ~held[:, :, None], axis=0)
    some = jnp.any(held, axis=0) & jnp.any(apart, axis=-1)
    # For a class without rivals, all classes are used so that the sum is finite; its loss is
    # excluded below.
    rivals = jnp.where(apart | ~some[:, None], dots, -jnp.inf)
    loss = jax.nn.softplus(jax.nn.logsumexp(rivals, axis=-1) - own)
    return jnp.sum(jnp.where(some, loss, 0.0))
