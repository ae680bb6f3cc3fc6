"""FedRCL. Seo et al., Relaxed Contrastive Learning for Federated Learning, CVPR 2024.

The loss is the cross-entropy plus the mean over levels of the network of a supervised contrastive
loss and a penalty on samples of a class whose features collapse. As in the authors' code, the
contrastive loss uses the least similar sample of the class and the ``num_negatives`` most similar
samples of other classes, and the penalty uses only the least similar pair; the paper sums over all
pairs above the threshold.

The levels are the outputs of the network's stages before their activation, averaged over pixels;
for a ResNet-18, these are the stem and the four stages. For a network without stages (a custom
module that sows no ``blocks``, or the logistic regression), the features are the only level.
Clients have equal weights.
"""

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, Positive, PositiveInt, validated
from fedjax_skew.methods.base import Method, uniform


@validated("hparams.fedrcl")
def fedrcl(
    *,
    weight: NonNegative = 1.0,
    temperature: Positive = 0.05,
    threshold: NonNegative = 0.7,
    num_negatives: PositiveInt = 2,
) -> Method:
    """Adds a supervised contrastive loss at several levels, relaxed where a class collapses.

    Args:
        weight: weight of both terms.
        temperature: temperature of both terms.
        threshold: cosine at and above which a class counts as collapsed; a value above 1 disables
            the penalty.
        num_negatives: number of samples of other classes with which a sample is contrasted.
    """

    def regularizer(weight, temperature, threshold, context):
        labels, where = context.batch.labels, context.batch.where
        levels = context.outputs.blocks or (context.outputs.features,)
        total = 0.0
        for level in levels:
            total = total + losses.supervised_contrastive(
                level, labels, temperature=temperature, num_negatives=num_negatives, where=where
            )
            total = total + losses.divergence_penalty(
                level, labels, temperature=temperature, threshold=threshold, where=where
            )
        return weight * total / len(levels)

    return Method(
        "fedrcl",
        regularizer=Partial(regularizer, weight, temperature, threshold) if weight else None,
        weight=uniform,
        needs_blocks=weight > 0,
    )
