"""FedPer. Arivazhagan et al., Federated Learning with Personalization Layers, 2019.

Clients train all layers, but the head never leaves them; the server averages the rest, running
statistics included. A client's own model is the new global body with its own head. A client that
has not taken part yet uses the mean of the last cohort's heads, and the global model is evaluated
with that mean, which the paper does not report.

There is no published code. The paper also keeps the last blocks of a network at the client; here it
is the head alone.
"""

from fedjax_skew.checks import validated
from fedjax_skew.methods.base import Method
from fedjax_skew.methods.local_layers import head_mask, keep_leaves


@validated("hparams.fedper")
def fedper() -> Method:
    """Every client keeps its own head; the rest of the network is averaged."""
    return keep_leaves("fedper", head_mask, start_from_mean=True)
