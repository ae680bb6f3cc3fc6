"""FedPer. Arivazhagan et al., Federated Learning with Personalization Layers, 2019.

Clients train all layers, but the head never leaves them; the server averages the rest, running
statistics included. A client's own model is the new global body with its own head. The global model
is evaluated with the mean of the cohorts' heads, which the paper does not report.

There is no code of the authors. In FedRep's repository, heads do leave their clients: one that has
not taken part yet starts from the mean of the last cohort's heads. The paper also keeps the last
blocks of a network at the client; here it is the head alone.
"""

from typing import Literal

from fedjax_skew.checks import validated
from fedjax_skew.methods.base import Method
from fedjax_skew.methods.local_layers import head_mask, keep_leaves


@validated("hparams.fedper")
def fedper(*, form: Literal["paper", "code"] = "paper") -> Method:
    """Every client keeps its own head; the rest of the network is averaged.

    Args:
        form: what a client starts from that has not taken part yet: the initial head (``"paper"``),
            or the mean of the last cohort's heads (``"code"``), for which heads are sent.
    """
    return keep_leaves("fedper", head_mask, start_from_mean=form == "code")
