"""FedETF. Li et al., No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with
Synthetic and Fixed Classifier, ICCV 2023.

The head is a fixed simplex equiangular tight frame, which is not trained. Features pass through a
linear projection, are scaled to length 1 and are compared with the frame. The cosines are
multiplied by a trained scalar, and clients minimise the balanced softmax, with counts to the power
of ``gamma``. In the authors' code, a vacant class counts as one sample; in the paper
(``form="paper"``), it is excluded from the softmax.

A client's personal model, if enabled, is the global model after ``finetune_cycles`` cycles of three
epochs on the frame alone and three on the projection alone. The authors use 20 cycles after an
additional local round, which is not implemented.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, NonNegativeInt, Positive, validated, whole
from fedjax_skew.methods.base import Client, Method
from fedjax_skew.methods.fine_tuning import fine_tune
from fedjax_skew.methods.fixed_head import cosine_model, random_etf
from fedjax_skew.methods.local_layers import body_mask

_EPOCHS = 3  # Epochs of each half of a cycle.


@validated("hparams.fedetf")
def fedetf(
    *,
    width: NonNegativeInt = 0,
    scale: Positive = 10.0,
    gamma: NonNegative = 1.0,
    form: Literal["paper", "code"] = "code",
    finetune_cycles: Annotated[int, whole(0, smoke=1)] = 0,
) -> Method:
    """Projects features and compares them with a fixed simplex frame.

    Args:
        width: size of the projected features, at least the number of classes; 0 stands for the
            number of classes.
        scale: initial value of the trained factor on the cosines; 10 for the authors' CNN, 1 for
            their ResNets.
        gamma: power of the class counts in the balanced softmax.
        form: whether vacant classes count as one sample (``"code"``) or are excluded from the
            softmax (``"paper"``).
        finetune_cycles: fine-tuning cycles of a client's personal model; 0 disables personal
            models.
    """

    def make_head(key, features, classes):
        return random_etf(key, features, classes, "hparams.fedetf.width")

    def loss(gamma, context):
        counts = context.client.class_counts
        if form == "code":
            counts = jnp.maximum(counts, 1)
        return context.mean(
            losses.balanced_softmax(context.outputs.logits, context.batch.labels, counts, tau=gamma)
        )

    def personal(client: Client):
        def only(part):
            return {n: jax.tree.map(lambda _, n=n: n == part, p) for n, p in client.params.items()}

        def cycle(_, model):
            model = fine_tune(client, *model, epochs=_EPOCHS, lr=0.1, mask=only("head"))
            return fine_tune(
                client,
                *model,
                epochs=_EPOCHS,
                lr=0.05,
                momentum=0.9,
                weight_decay=5e-4,
                mask=only("head_projection"),
            )

        return jax.lax.fori_loop(0, finetune_cycles, cycle, (client.params, client.stats))

    return Method(
        "fedetf",
        model=lambda model: cosine_model(model, make_head, scale=scale, width=width, project=True),
        loss=Partial(loss, gamma),
        trainable=lambda client, step: body_mask(client.params),
        personal=personal if finetune_cycles else None,
    )
