"""FedBN. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization,
ICLR 2021.

Normalisation layers (scale, shift and running statistics) stay with the client. Parameters are
chosen by layer, not by a substring of their name. There is no global normalisation: the global
model that is evaluated carries the averages, and ``personal`` gives each client's own model.
"""

import jax
import jax.numpy as jnp

from fedjax_skew.methods.base import Method, State, Upload
from fedjax_skew.models import norm_mask


def fedbn() -> Method:
    """Normalisation layers stay local; everything else is averaged."""

    def keep(params, stats):
        norm = jax.tree.map(
            lambda p, is_norm: p if is_norm else jnp.zeros((0,)), params, norm_mask(params)
        )
        return {"norm": norm, "stats": stats}

    def own(client):
        params = jax.tree.map(
            lambda p, k, is_norm: k if is_norm else p,
            client.params,
            client.kept["norm"],
            norm_mask(client.params),
        )
        return params, client.kept["stats"]

    return Method(
        "fedbn",
        init=lambda setup: State(None, keep(setup.params, setup.stats)),
        start=own,
        finish=lambda client, result: Upload(keep(result.params, result.stats)),
        personal=own,
    )


def local_statistics() -> Method:
    """Only the running statistics stay local: the policy ``batch_norm="local"``."""
    return Method(
        "local_statistics",
        init=lambda setup: State(None, setup.stats),
        start=lambda client: (client.params, client.kept),
        finish=lambda client, result: Upload(result.stats),
        personal=lambda client: (client.params, client.kept),
    )
