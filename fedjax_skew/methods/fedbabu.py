"""FedBABU. Oh, Kim and Yun, FedBABU: Toward Enhanced Representation for Federated Image
Classification, ICLR 2022.

Clients train only the body. The head keeps its random initial value, which all clients share, and
is not affected by weight decay. The server averages bodies with equal weights, and the global model
is evaluated with the initial head. A client's personal model is the global model after
``finetune_epochs`` of SGD on the client's data, in which head and body are trained together; the
authors' notebook uses 5 epochs. The authors normalise test batches by their own statistics; here
running statistics are averaged as for other methods.
"""

from jax.tree_util import Partial

from fedjax_skew.checks import BelowOne, NumSteps, Positive, validated
from fedjax_skew.methods.base import Method, uniform
from fedjax_skew.methods.fine_tuning import fine_tune
from fedjax_skew.methods.local_layers import body_mask


@validated("hparams.fedbabu")
def fedbabu(
    *,
    finetune_epochs: NumSteps = 5,
    finetune_lr: Positive = 1e-3,
    finetune_momentum: BelowOne = 0.9,
) -> Method:
    """Trains the body with a fixed random head; clients then fine-tune the whole model.

    Args:
        finetune_epochs: number of passes over a client's data that fine-tune its personal model.
        finetune_lr: learning rate of the fine-tuning.
        finetune_momentum: momentum of the fine-tuning.
    """

    def personal(finetune_lr, finetune_momentum, client):
        return fine_tune(
            client,
            client.params,
            client.stats,
            epochs=finetune_epochs,
            lr=finetune_lr,
            momentum=finetune_momentum,
        )

    return Method(
        "fedbabu",
        trainable=lambda client, step: body_mask(client.params),
        weight=uniform,
        personal=Partial(personal, finetune_lr, finetune_momentum or None),
    )
