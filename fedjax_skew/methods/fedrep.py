"""FedRep. Collins et al., Exploiting Shared Representations for Personalized Federated Learning,
ICML 2021.

The method differs from FedPer in that the two parts are trained in turn: first the head with a
frozen body, then the body with a frozen head. The authors train the head for 10 of 11 epochs on
CIFAR-10 and for 10 of 15 on CIFAR-100 and FEMNIST; here the local steps are divided in a given
proportion, and the body is trained for at least one step. Frozen parameters do not change; in the
authors' code, with the PyTorch version of its time, momentum and weight decay still change them.

A client's personal model is the new global body with the client's head. A client that has not
participated yet uses the mean of the last cohort's heads, as in the authors' code. The authors tune
the heads of all clients once more after the last round, which is not implemented.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew.checks import Fraction, validated
from fedjax_skew.methods.base import Client, Method, PyTree
from fedjax_skew.methods.local_layers import head_mask, keep_leaves


@validated("hparams.fedrep")
def fedrep(*, head_share: Fraction = 2 / 3) -> Method:
    """Trains personal heads first, then the shared body.

    Args:
        head_share: share of the local steps that train the head; the others train the body.
    """

    def trainable(head_share: float, client: Client, step: jax.Array) -> PyTree:
        steps = jnp.round(head_share * client.num_steps).astype(jnp.int32)
        steps = jnp.minimum(steps, client.num_steps - (head_share < 1))
        head_phase = step < steps
        return jax.tree.map(lambda is_head: is_head == head_phase, head_mask(client.params))

    return dataclasses.replace(
        keep_leaves("fedrep", head_mask, start_from_mean=True),
        trainable=Partial(trainable, head_share),
    )
