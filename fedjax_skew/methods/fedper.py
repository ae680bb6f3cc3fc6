"""FedPer. Arivazhagan et al., Federated Learning with Personalization Layers, 2019.

Clients train all layers, but keep their head; the server averages the other layers, including
running statistics. A client's personal model is the new global body with the client's head. The
global model, which the paper does not report, is evaluated with the initial head plus the mean
changes that the cohorts made to theirs, or in ``form="code"`` with the mean of the last cohort's
heads. With full participation the two are the same.

The authors have not published code. In FedRep's repository, clients send their heads, and a client
that has not participated yet starts from the mean of the last cohort's heads. The paper also keeps
the last blocks of a network on the client; here only the head is kept.
"""

from typing import Literal

from fedjax_skew.checks import validated
from fedjax_skew.methods.base import Method
from fedjax_skew.methods.local_layers import head_mask, keep_leaves


@validated("hparams.fedper")
def fedper(*, form: Literal["paper", "code"] = "paper") -> Method:
    """Keeps a personal head on every client and averages the rest of the network.

    Args:
        form: the head with which a client starts its first participation: the initial head
            (``"paper"``), or the mean of the last cohort's heads (``"code"``), for which heads are
            sent to the server.
    """
    return keep_leaves("fedper", head_mask, start_from_mean=form == "code")
