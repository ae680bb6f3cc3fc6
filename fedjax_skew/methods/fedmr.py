"""FedMR. Fan et al., Federated Learning under Partially Class-Disjoint Data via Manifold
Reshaping, TMLR 2023.

The published code holds only the intra-class term, and so does this method; the paper's second
term, a margin between global class prototypes, has no published form to follow. The server
weights clients by their number of batches, as the published code does.
"""

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method, batch_count


@validated("hparams.fedmr")
def fedmr(*, mu: NonNegative = 0.01, batch_weights: bool = True) -> Method:
    """Features of one class are decorrelated on every client.

    Args:
        mu: weight of the intra-class term. Its scale grows with the samples of a class in a batch.
        batch_weights: weight clients by batches; False weights them by samples.
    """

    def regularizer(context):
        return mu * losses.intra_class_decorrelation(
            context.outputs.features,
            context.batch.labels,
            num_classes=context.client.info.num_classes,
            where=context.batch.where,
        )

    return Method(
        "fedmr",
        regularizer=regularizer if mu else None,
        weight=batch_count if batch_weights else None,
    )
