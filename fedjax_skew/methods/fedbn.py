"""FedBN. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization,
ICLR 2021.

Normalisation layers (scale, shift and running statistics) stay with the client. They are identified
by the name of the layer, which starts with ``norm``, not by a substring of the parameter's name.
There are no global normalisation layers: the evaluated global model uses the averages, and
``personal`` returns each client's own model.
"""

from fedjax_skew.checks import validated
from fedjax_skew.methods.base import Method, MethodState, Upload
from fedjax_skew.methods.local_layers import keep_leaves
from fedjax_skew.models import norm_mask


@validated("hparams.fedbn")
def fedbn() -> Method:
    """Keeps normalisation layers local and averages everything else."""
    return keep_leaves("fedbn", norm_mask, keep_stats=True)


def local_statistics() -> Method:
    """Keeps only the running statistics local, which is the policy ``batch_norm="local"``."""
    return Method(
        "local_statistics",
        init=lambda context: MethodState(None, context.stats),
        start=lambda client: (client.params, client.state),
        make_upload=lambda client, result: Upload(result.stats),
        personal=lambda client: (client.params, client.state),
    )
