"""FedBABU. Oh, Kim and Yun, FedBABU: Toward Enhanced Representation for Federated Image
Classification, ICLR 2022.

Clients train the body only; the head keeps its random initial value, the same for everybody, for
the whole training, whatever the weight decay. The server averages bodies with equal weights. The
global model is evaluated with that head. A client's own model is the global model after
``finetune_epochs`` of SGD on the client's data, head and body together; 5 epochs in the authors'
notebook. They normalise test batches by their own statistics; here running statistics are averaged
as for other methods.
"""

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
    """The body is trained under a fixed random head; clients then fine-tune the whole model.

    Args:
        finetune_epochs: passes over a client's data that make its own model.
        finetune_lr: learning rate of these passes.
        finetune_momentum: momentum of these passes.
    """

    def personal(client):
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
        personal=personal,
    )
