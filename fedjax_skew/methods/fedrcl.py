"""FedRCL. Seo et al., Relaxed Contrastive Learning for Federated Learning, CVPR 2024.

Cross-entropy plus, as a mean over levels of the network, a supervised contrastive loss and a
penalty on samples of a class whose features collapse. As in the authors' code, the contrast takes
the least similar sample of the class and the ``num_negatives`` most similar ones of other classes,
and the penalty only the least similar pair; the paper sums over all pairs above the threshold.

Levels are the outputs of the network's stages before their activation, averaged over pixels: stem
and four stages of a ResNet-18. A network without stages (a module of one's own that sows no
``blocks``, or the logistic regression) has its features as only level. Clients have equal weights.
"""

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
    """Supervised contrast at several levels, relaxed where a class collapses.

    Args:
        weight: of both terms.
        temperature: of both terms.
        threshold: cosine from which on a class counts as collapsed; above 1 there is no penalty.
        num_negatives: samples of other classes that a sample is contrasted with.
    """

    def regularizer(context):
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
        regularizer=regularizer if weight else None,
        weight=uniform,
        needs_blocks=weight > 0,
    )
