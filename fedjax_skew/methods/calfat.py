"""CalFAT's calibrated loss. Chen et al., CalFAT: Calibrated Federated Adversarial Training with
Label Skewness, NeurIPS 2022.

The published form: logits times 10, shifted by the logarithm of the local counts, a missing class
counted as one sample, and equal weights on the server. Training is on clean samples.
"""

from fedjax_skew import losses
from fedjax_skew.checks import Positive, validated
from fedjax_skew.methods.base import Method, uniform


@validated("hparams.calfat")
def calfat(*, scale: Positive = 10.0, uniform_weights: bool = True) -> Method:
    """Cross-entropy calibrated by local class counts, with equal weights for clients.

    Args:
        scale: factor on the logits.
        uniform_weights: weight clients equally; False weights them by samples.
    """

    def loss(context):
        return context.mean(
            losses.calfat(
                context.outputs.logits,
                context.batch.labels,
                context.client.class_counts,
                scale=scale,
            )
        )

    return Method("calfat", loss=loss, weight=uniform if uniform_weights else None)
