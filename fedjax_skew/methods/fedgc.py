"""FedGC. Niu and Deng, Federated Learning for Face Recognition with Gradient Correction, AAAI
2022.

The paper is about identities that no two clients share; each client has a private head. Here, for
label skew with shared classes and one test set:

- A client's softmax covers the classes it holds, on a head without bias.
- The server averages row c of the head over the clients that hold class c, weighted by their
  samples of it; a class that nobody holds this round keeps its row. Everything else is averaged
  as in FedAvg.
- One step of length ``lam lr`` follows on the head, down the gradient of ``sum_i -log( e^{w~_i .
  w_i} / (e^{w~_i . w_i} + sum_j e^{w_j . w_i}) )``, where ``w~`` carries no gradient and j runs
  over the classes that some client holds without holding i: pairs that local training did not
  contrast there. Sums are taken in the log domain, as ``e^{w . w}`` overflows for long rows.

There is no published code, and the paper's value of ``lam`` is not known.
"""

import jax
import jax.numpy as jnp

from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.losses import balanced_softmax
from fedjax_skew.methods.base import Method, Upload, average


@validated("hparams.fedgc")
def fedgc(*, lam: NonNegative = 1.0, cosine: bool = False) -> Method:
    """Softmax over local classes, and a server step that parts classes of different clients.

    Args:
        lam: step of the correction, as a multiple of the client learning rate; 0 is none.
        cosine: compare rows of length 1.
    """

    def loss(context):
        # Without a shift this is cross-entropy among the classes the client holds.
        values = balanced_softmax(
            context.outputs.logits, context.batch.labels, context.client.class_counts, tau=0.0
        )
        return context.mean(values)

    def make_upload(client, result):
        moved = result.params["head"]["kernel"] - result.start["head"]["kernel"]
        return Upload(None, None, moved * client.class_counts)

    def server(rnd):
        new = average(rnd)
        counts = jnp.where((rnd.weights > 0)[:, None], rnd.class_counts, 0.0)
        kernel = rnd.params["head"]["kernel"] + rnd.summed / jnp.maximum(counts.sum(0), 1)
        if lam:
            rows = kernel.T
            gradient = jax.grad(correction)(rows, counts > 0, cosine=cosine)
            kernel = (rows - lam * rnd.lr * gradient).T
        head = {**new.params["head"], "kernel": kernel}
        return new._replace(params={**new.params, "head": head})

    return Method(
        "fedgc",
        loss=loss,
        make_upload=make_upload,
        server=server,
        head_bias=False,
        needs_linear_head=True,
    )


def correction(rows: jax.Array, held: jax.Array, *, cosine: bool = False) -> jax.Array:
    """The regulariser of the head.

    Args:
        rows: one row for each class ``[C, D]``.
        held: bool ``[M, C]``, which client holds which class.
        cosine: scale rows to length 1.

    Returns:
        A scalar; 0 if every client holds the same classes.
    """
    if cosine:
        rows = rows * jax.lax.rsqrt(jnp.sum(rows * rows, -1, keepdims=True) + 1e-12)
    own = jnp.sum(jax.lax.stop_gradient(rows) * rows, -1)
    dots = jnp.matmul(rows, rows.T, precision="highest")
    apart = jnp.any(held[:, None, :] & ~held[:, :, None], axis=0)
    some = jnp.any(held, axis=0) & jnp.any(apart, axis=-1)
    # A class without rivals gets one, so that the sum is finite, and is then left out.
    rivals = jnp.where(apart | ~some[:, None], dots, -jnp.inf)
    loss = jax.nn.softplus(jax.nn.logsumexp(rivals, axis=-1) - own)
    return jnp.sum(jnp.where(some, loss, 0.0))
