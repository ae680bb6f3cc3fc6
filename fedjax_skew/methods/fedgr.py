"""FedGR. Guo et al., FedGR: Federated Learning with Gravitation Regulation for Double Imbalance
Distribution, DASFAA 2023.

Clients train an unbalanced softmax (eqs. 3, 4) with a head without bias. The server stacks the
heads of the cohort, takes one gradient step on the gravitation regulariser (eq. 9) with step size
``lam lr``, where ``lr`` is the client learning rate, and averages the result by samples. There is
no published code for the server.

``form`` selects the factor of the softmax, as in ``losses.unbalanced_softmax``. The printed factor
``N / n_c`` can exceed 1,000 for rare classes: on MNIST (``configs/mnist.py``, client_lr 0.01) and
on Fashion-MNIST (``double(labels=3)``, client_lr 0.1) the loss is not finite in round 1 unless
gradients are clipped. The factor of the authors' code trains, but is less accurate than FedAvg. On
Fashion-MNIST as above (MLP, 60 rounds, one seed, mean of the last 50) ``"sqrt"`` reaches 76.6 %,
``"normalized"`` 73.4 % with ``clip_norm=100`` and 75.1 % with 10, and FedAvg 71.6 %;
``"normalized"`` without clipping is not finite in round 15.

``unbalanced=False`` and ``lam=0`` are the two rows of the paper's ablation.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew.checks import NonNegative, defaults, validated
from fedjax_skew.losses import gravitation, unbalanced_softmax
from fedjax_skew.methods.base import Method, Upload, average


@validated("hparams.fedgr")
def fedgr(
    *,
    lam: NonNegative = 0.5,
    unbalanced: bool = True,
    form: Literal["paper", "code", "normalized", "sqrt"] = defaults(unbalanced_softmax)["form"],
) -> Method:
    """Trains with an unbalanced softmax and regularises the clients' heads on the server.

    Args:
        lam: strength of the gravitation; 0 disables it.
        unbalanced: whether to use the unbalanced softmax instead of the cross-entropy.
        form: factor on logits: ``"paper"`` for ``N / n_c``, ``"code"`` for ``n_min / n_c``,
            ``"normalized"`` for ``N / (C_k n_c)`` with ``C_k`` classes present, ``"sqrt"`` for the
            square root of ``"normalized"``.
    """

    def loss(context):
        values = unbalanced_softmax(
            context.outputs.logits, context.batch.labels, context.client.class_counts, form=form
        )
        return context.mean(values)

    def make_upload(client, result):
        return Upload(None, result.params["head"]["kernel"].T)

    def server(lam, rnd):
        new = average(rnd)
        present = (rnd.class_counts > 0) & (rnd.weights > 0)[:, None]
        gradient = jax.grad(gravitation)(rnd.stacked, present)
        # Averaging the heads after one step each equals one step of their mean.
        pull = jnp.tensordot(rnd.weights, gradient, 1).T
        kernel = new.params["head"]["kernel"] - lam * rnd.lr * pull
        head = {**new.params["head"], "kernel": kernel}
        return new._replace(params={**new.params, "head": head})

    return Method(
        "fedgr",
        loss=loss if unbalanced else None,
        make_upload=make_upload if lam else None,
        server=Partial(server, lam) if lam else None,
        head_bias=False,
        needs_linear_head=lam > 0,
    )
