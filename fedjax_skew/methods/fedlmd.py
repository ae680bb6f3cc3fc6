"""FedLMD and its teacher-free variant. Lu et al., Federated Learning with Label-Masking
Distillation, ACM Multimedia 2023.

The teacher is restricted to the client's minority classes. The published teacher-free code does not
run, because its uniform weight confuses two axes; here the target is uniform over the same classes.
The loss of a sample whose class is the client's only minority class is 0, whereas the published
masks give a large constant.
"""

from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, Positive, validated
from fedjax_skew.methods.base import Method


@validated("hparams.fedlmd")
def fedlmd(*, beta: NonNegative = 1.0, temperature: Positive = 1.0) -> Method:
    """Distils the global model on the client's minority classes.

    Args:
        beta: weight of the distillation.
        temperature: temperature of both softmaxes; the loss is multiplied by its square.
    """
    return _label_masking("fedlmd", beta, temperature, teacher_free=False)


@validated("hparams.fedlmd_tf")
def fedlmd_tf(*, beta: NonNegative = 1.0, temperature: Positive = 1.0) -> Method:
    """Distils a uniform target over the client's minority classes, without a teacher.

    Args:
        beta: weight of the distillation.
        temperature: temperature of the student's softmax; the loss is multiplied by its square.
    """
    return _label_masking("fedlmd_tf", beta, temperature, teacher_free=True)


def _label_masking(name: str, beta: float, temperature: float, *, teacher_free: bool) -> Method:

    def regularizer(beta, temperature, context):
        return beta * context.mean(
            losses.label_masking_distillation(
                context.outputs.logits,
                context.batch.labels,
                None if teacher_free else context.client.teacher(context.batch).logits,
                context.client.class_counts,
                temperature=temperature,
            )
        )

    return Method(name, regularizer=Partial(regularizer, beta, temperature) if beta else None)
