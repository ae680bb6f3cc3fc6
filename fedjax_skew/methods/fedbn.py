"""FedBN. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization,
ICLR 2021.

Normalisation layers (scale, shift and running statistics) stay with the client. Parameters are
chosen by layer, not by a substring of their name. There is no global normalisation: the global
model that is evaluated carries the averages, and ``personal`` gives each client's own model.
"""

import jax

from fedjax_skew.checks import validated
from fedjax_skew.methods.base import Method, MethodState, Upload
from fedjax_skew.models import norm_mask


@validated("hparams.fedbn")
def fedbn() -> Method:
    """Normalisation layers stay local; everything else is averaged."""

    def keep(params, stats):
        leaves, mask = jax.tree.leaves(params), jax.tree.leaves(norm_mask(params))
        return {
            "norm": [p for p, is_norm in zip(leaves, mask, strict=True) if is_norm],
            "stats": stats,
        }

    def own(client):
        leaves, structure = jax.tree.flatten(client.params)
        kept, mask = iter(client.state["norm"]), jax.tree.leaves(norm_mask(client.params))
        leaves = [next(kept) if is_norm else p for p, is_norm in zip(leaves, mask, strict=True)]
        return jax.tree.unflatten(structure, leaves), client.state["stats"]

    return Method(
        "fedbn",
        init=lambda context: MethodState(None, keep(context.params, context.stats)),
        start=own,
        make_upload=lambda client, result: Upload(keep(result.params, result.stats)),
        personal=own,
    )


def local_statistics() -> Method:
    """Only the running statistics stay local: the policy ``batch_norm="local"``."""
    return Method(
        "local_statistics",
        init=lambda context: MethodState(None, context.stats),
        start=lambda client: (client.params, client.state),
        make_upload=lambda client, result: Upload(result.stats),
        personal=lambda client: (client.params, client.state),
    )
