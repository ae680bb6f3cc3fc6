"""FedAvg. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
Data, AISTATS 2017."""

from fedjax_skew.checks import validated
from fedjax_skew.methods.base import Method, uniform


@validated("hparams.fedavg")
def fedavg(*, uniform_weights: bool = False) -> Method:
    """Averages models that clients train with local SGD.

    Args:
        uniform_weights: whether to weight clients equally instead of by their number of samples.
    """
    return Method("fedavg", weight=uniform if uniform_weights else None)
