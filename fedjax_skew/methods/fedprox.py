"""FedProx. Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.

The proximal term is part of the loss, so that its gradient is subject to momentum. Published
variants that add it after momentum, or that use the norm instead of its square, are different
methods. Stragglers that perform less work are not simulated.
"""

import optax
from jax.tree_util import Partial

from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method


@validated("hparams.fedprox")
def fedprox(*, mu: NonNegative = 0.01) -> Method:
    """Penalises the squared distance between local models and the round's global model.

    Args:
        mu: weight of ``||w - x||^2 / 2``, summed over all parameters; 0 is FedAvg.
    """

    def regularizer(mu, context):
        drift = optax.tree.sub(context.params, context.client.params)
        return 0.5 * mu * optax.tree.vdot(drift, drift)

    return Method("fedprox", regularizer=Partial(regularizer, mu) if mu else None)
