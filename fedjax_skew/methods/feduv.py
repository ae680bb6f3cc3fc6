"""FedUV. Son et al., FedUV: Uniformity and Variance for Heterogeneous Federated Learning, CVPR
2024.

The loss is the cross-entropy, plus ``lam`` times a hinge loss on the standard deviation of each
class's predicted probability over the batch, plus ``mu`` times the uniformity of the features under
a Gaussian kernel. The width of the kernel is the median squared distance in the batch. In the
authors' code and by default, the gradient flows through the width: on random features, the gradient
of the median pair is then 7 to 17 times that of all other pairs. ``detach_sigma=True`` treats the
width as a constant.
"""

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, validated
from fedjax_skew.methods.base import Method, nonzero


@validated("hparams.feduv")
def feduv(*, lam: NonNegative = 2.5, mu: NonNegative = 0.5, detach_sigma: bool = False) -> Method:
    """Encourages predictions that vary over the batch and features that are spread out.

    Args:
        lam: weight of the classifier's variance; 0 disables the term.
        mu: weight of the features' uniformity; 0 disables the term.
        detach_sigma: whether to stop the gradient through the width of the kernel.
    """

    def regularizer(weights, context):
        outputs, where, total = context.outputs, context.batch.where, 0.0
        if "lam" in weights:
            total = total + weights["lam"] * losses.classifier_variance(outputs.logits, where=where)
        if "mu" in weights:
            total = total + weights["mu"] * losses.feature_uniformity(
                outputs.features, detach_sigma=detach_sigma, where=where
            )
        return total

    weights = nonzero(lam=lam, mu=mu)
    return Method("feduv", regularizer=Partial(regularizer, weights) if weights else None)
