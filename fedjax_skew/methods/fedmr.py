"""FedMR. Fan et al., Federated Learning under Partially Class-Disjoint Data via Manifold
Reshaping, TMLR 2023.

Like the published code, this method implements only the intra-class term; there is no published
implementation of the paper's second term, a margin between global class prototypes. The server
weights clients by their number of batches, as in the published code.
"""

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method, batch_count


@validated("hparams.fedmr")
def fedmr(*, mu: NonNegative = 0.01, batch_weights: bool = True) -> Method:
    """Decorrelates the features of each class on every client.

    Args:
        mu: weight of the intra-class term, whose scale grows with the number of samples per class
            in a batch.
        batch_weights: whether to weight clients by their number of batches instead of samples.
    """

    def regularizer(mu, context):
        return mu * losses.intra_class_decorrelation(
            context.outputs.features,
            context.batch.labels,
            num_classes=context.client.info.num_classes,
            where=context.batch.where,
        )

    return Method(
        "fedmr",
        regularizer=Partial(regularizer, mu) if mu else None,
        weight=batch_count if batch_weights else None,
    )
