"""FedUV. Son et al., FedUV: Uniformity and Variance for Heterogeneous Federated Learning, CVPR
2024.

Cross-entropy plus ``lam`` times a hinge on the deviation of each class's predicted probability over
the batch, plus ``mu`` times the uniformity of the features under a Gaussian kernel. The width of
the kernel is the median squared distance of the batch. The authors' code lets the gradient flow
through it (the default): on random features the pair in the middle then gets 7 to 17 times the
gradient of all other pairs. ``detach_sigma=True`` treats it as a constant.
"""

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method


@validated("hparams.feduv")
def feduv(*, lam: NonNegative = 2.5, mu: NonNegative = 0.5, detach_sigma: bool = False) -> Method:
    """Predictions vary over the batch, and features spread out, as with independent data.

    Args:
        lam: weight of the classifier's variance; 0 leaves the term out.
        mu: weight of the features' uniformity; 0 leaves the term out.
        detach_sigma: no gradient flows through the width of the kernel.
    """

    def regularizer(context):
        outputs, where, total = context.outputs, context.batch.where, 0.0
        if lam:
            total = total + lam * losses.classifier_variance(outputs.logits, where=where)
        if mu:
            total = total + mu * losses.feature_uniformity(
                outputs.features, detach_sigma=detach_sigma, where=where
            )
        return total

    return Method("feduv", regularizer=regularizer if lam or mu else None)
