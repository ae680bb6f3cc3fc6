"""FedCurv. Shoham et al., Overcoming Forgetting in Federated Learning on Non-IID Data, 2019.

A client's penalty is ``lam * sum_j (w - y_j)' diag(F_j) (w - y_j)`` over all other clients ``j``
seen so far, where ``y_j`` is the model and ``F_j`` the Fisher information that client ``j``
uploaded last. The sum is a quadratic function: the server keeps its three coefficients, and each
client keeps its own contribution, which is subtracted.

``F`` is the mean over the client's samples of the squared gradients of the log-likelihood of their
labels, in evaluation mode. ``fisher="batch"`` squares the mean gradients of mini-batches instead,
as published re-implementations do; the result is smaller by a factor of up to the batch size.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import NonNegative, NonNegativeInt, validated
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import (
    Batch,
    Client,
    LocalResult,
    Method,
    MethodState,
    PyTree,
    Upload,
    masked_mean,
)

# Number of floats of per-sample gradients that a client holds at one time. On CPUs, exceeding the
# cache is slower by an order of magnitude.
_FLOATS = 2**18


class Quadratic(NamedTuple):
    """The coefficients of ``<square, w * w> - 2 <linear, w> + constant``."""

    square: PyTree
    linear: PyTree
    constant: jax.Array


@validated("hparams.fedcurv")
def fedcurv(
    *,
    lam: NonNegative = 1.0,
    fisher: Literal["sample", "batch"] = "sample",
    fisher_samples: NonNegativeInt = 500,
) -> Method:
    """Penalises changes of parameters that are important to other clients.

    Args:
        lam: weight of the penalty; ``lr * lam * F`` must be well below 1 for training to converge.
        fisher: whether to square the gradients of a ``"sample"`` or of a ``"batch"``.
        fisher_samples: number of random samples of a client on which its Fisher information is
            estimated, rounded up to whole batches; 0 uses all samples.
    """

    def init(context):
        zero = optax.tree.zeros_like(context.params)
        nothing = Quadratic(zero, zero, jnp.float32(0))
        return MethodState(nothing, nothing)

    def regularizer(lam, context):
        others = optax.tree.sub(context.client.server, context.client.state)
        square = jax.tree.map(jnp.square, context.params)
        return lam * (
            optax.tree.vdot(others.square, square)
            - 2.0 * optax.tree.vdot(others.linear, context.params)
            + others.constant
        )

    def make_upload(client, result):
        square = _fisher(client, result, fisher, fisher_samples)
        linear = jax.tree.map(jnp.multiply, square, result.params)
        own = Quadratic(square, linear, optax.tree.vdot(linear, result.params))
        return Upload(own, summed=optax.tree.sub(own, client.state))

    return Method(
        "fedcurv",
        init=init,
        regularizer=Partial(regularizer, lam),
        make_upload=make_upload,
        update_server_state=lambda rnd: optax.tree.add(rnd.state, rnd.summed),
    )


def _fisher(client: Client, result: LocalResult, kind: str, samples: int) -> PyTree:
    """Estimates the diagonal Fisher information of the local model on the client's samples."""

    def loss(params, batch):
        outputs, _ = client.model.apply(params, result.stats, batch.x, where=batch.where)
        return masked_mean(cross_entropy(outputs.logits, batch.labels), batch.where)

    gradient = jax.grad(loss)
    num_params = sum(p.size for p in jax.tree.leaves(result.params))
    rows = min(max(_FLOATS // num_params, 1), client.info.batch_rows)

    def of_batch(carry, batch):
        total, number = carry
        squared = jax.tree.map(jnp.square, gradient(result.params, batch))
        return optax.tree.add(total, squared), number + 1

    def of_samples(carry, batch):
        total, number = carry

        def add(total, rows):
            single = jax.tree.map(lambda a: a[:, None], rows)
            gradients = jax.vmap(gradient, (None, 0))(result.params, single)
            # The gradient of a padded row is that of an empty mean, which is 0.
            squared = jax.tree.map(lambda g: jnp.sum(jnp.square(g), 0), gradients)
            return optax.tree.add(total, squared), None

        total, _ = jax.lax.scan(add, total, _cut(batch, rows))
        return total, number + jnp.sum(batch.where)

    # Shuffled, because the stored order is by class.
    key = jax.random.fold_in(client.key, 0)
    batches = -(-samples // client.info.batch_rows)
    init = optax.tree.zeros_like(result.params), jnp.float32(0)
    step = of_batch if kind == "batch" else of_samples
    total, number = client.fold(step, init, key, batches)
    return optax.tree.scale(1.0 / jnp.maximum(number, 1), total)


def _cut(batch: Batch, rows: int) -> Batch:
    """Pads a batch to a multiple of ``rows`` and cuts it into ``[parts, rows, ...]``."""
    size = batch.where.shape[0]
    parts = -(-size // rows)

    def cut(a):
        padding = [(0, parts * rows - size)] + [(0, 0)] * (a.ndim - 1)
        return jnp.pad(a, padding).reshape(parts, rows, *a.shape[1:])

    return jax.tree.map(cut, batch)
