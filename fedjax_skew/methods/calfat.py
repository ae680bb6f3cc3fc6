"""CalFAT's calibrated loss. Chen et al., CalFAT: Calibrated Federated Adversarial Training with
Label Skewness, NeurIPS 2022.

As in the published code, logits are multiplied by 10 and shifted by the logarithm of the local
counts, a missing class counts as one sample, and the server weights clients equally. Training uses
clean samples; there is no adversarial training.
"""

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import Positive, validated
from fedjax_skew.methods.base import Method, uniform


@validated("hparams.calfat")
def calfat(*, scale: Positive = 10.0, uniform_weights: bool = True) -> Method:
    """Calibrates the cross-entropy by local class counts and weights clients equally.

    Args:
        scale: factor on the logits.
        uniform_weights: whether to weight clients equally instead of by their number of samples.
    """

    def loss(scale, context):
        return context.mean(
            losses.calfat(
                context.outputs.logits,
                context.batch.labels,
                context.client.class_counts,
                scale=scale,
            )
        )

    return Method("calfat", loss=Partial(loss, scale), weight=uniform if uniform_weights else None)
