"""FedRep. Collins et al., Exploiting Shared Representations for Personalized Federated Learning,
ICML 2021.

As FedPer, but the two parts are trained one after the other: first the head with the body frozen,
then the body with the head frozen. The authors give the head 10 of 11 epochs on CIFAR-10 and 10 of
15 on CIFAR-100 and FEMNIST; here the local steps are divided in a given proportion, and the body
gets at least one. A frozen part has no gradient at all: in the authors' code with the PyTorch of
its time momentum and weight decay still move it.

A client's own model is the new global body with its own head. A client that has not taken part yet
uses the mean of the last cohort's heads, as in the authors' code. They tune the heads of all
clients once more after the last round, which is left out.
"""

import dataclasses

import jax
import jax.numpy as jnp

from fedjax_skew.checks import Fraction, validated
from fedjax_skew.methods.base import Client, Method, PyTree
from fedjax_skew.methods.local_layers import head_mask, keep_leaves


@validated("hparams.fedrep")
def fedrep(*, head_share: Fraction = 2 / 3) -> Method:
    """Own heads are trained first, then the shared body.

    Args:
        head_share: part of the local steps that train the head; the rest train the body.
    """

    def trainable(client: Client, step: jax.Array) -> PyTree:
        steps = jnp.round(head_share * client.num_steps).astype(jnp.int32)
        if head_share < 1:
            steps = jnp.minimum(steps, client.num_steps - 1)
        head_phase = step < steps
        return jax.tree.map(lambda is_head: is_head == head_phase, head_mask(client.params))

    return dataclasses.replace(
        keep_leaves("fedrep", head_mask, start_from_mean=True), trainable=trainable
    )
