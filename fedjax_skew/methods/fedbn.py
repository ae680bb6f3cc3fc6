"""FedBN. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization,
ICLR 2021.

Normalisation layers (scale, shift and running statistics) stay with the client. Parameters are
chosen by layer, not by a substring of their name. There is no global normalisation: the global
model that is evaluated carries the averages, and ``personal`` gives each client's own model.
"""

from fedjax_skew.checks import validated
from fedjax_skew.methods.base import Method, MethodState, Upload
from fedjax_skew.methods.local_layers import keep_leaves
from fedjax_skew.models import norm_mask


@validated("hparams.fedbn")
def fedbn() -> Method:
    """Normalisation layers stay local; everything else is averaged."""
    return keep_leaves("fedbn", norm_mask, keep_stats=True)


def local_statistics() -> Method:
    """Only the running statistics stay local: the policy ``batch_norm="local"``."""
    return Method(
        "local_statistics",
        init=lambda context: MethodState(None, context.stats),
        start=lambda client: (client.params, client.state),
        make_upload=lambda client, result: Upload(result.stats),
        personal=lambda client: (client.params, client.state),
    )
