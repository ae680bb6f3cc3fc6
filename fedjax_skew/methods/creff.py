"""CReFF. Shang et al., Federated Learning on Heterogeneous and Long-Tailed Data via Classifier
Re-training with Federated Features, IJCAI 2022.

Clients train the whole model with FedAvg's head. Before training, they compute the gradient of the
re-trained head on the global model's features, class by class, and send it to the server. The
server optimises its synthetic features so that they produce the same gradients at that head. It
then trains a new, randomly initialised head on them. This head is evaluated with FedAvg's backbone
and is the re-trained head of the next round.

The mean of several gradients on small samples of a class is computed as one gradient on all of the
samples together, which are drawn with replacement. The differentiable augmentation of these
samples, an option of the published code, is not implemented.
"""

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew.checks import NumSteps, Positive, PositiveInt, validated
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import (
    Client,
    Evaluation,
    Method,
    MethodState,
    PyTree,
    Round,
    Upload,
    masked_mean,
)
from fedjax_skew.methods.server_training import new_head, retrain_head, with_head
from fedjax_skew.models.functional import head


@validated("hparams.creff")
def creff(
    *,
    images_per_class: PositiveInt = 100,
    match_steps: NumSteps = 100,
    match_lr: Positive = 0.1,
    classifier_epochs: NumSteps = 300,
    classifier_lr: Positive = 0.01,
    classifier_batch_size: PositiveInt = 32,
    sample_size: PositiveInt = 32,
    repeats: PositiveInt = 10,
) -> Method:
    """Re-trains the head on synthetic features that match the clients' gradients.

    Args:
        images_per_class: number of synthetic features per class.
        match_steps: optimisation steps of the features per round.
        match_lr: learning rate of the features.
        classifier_epochs: number of passes over the features that train the new head.
        classifier_lr: learning rate of the new head.
        classifier_batch_size: batch size of the new head's training.
        sample_size: samples of a class per gradient.
        repeats: number of such gradients that a client averages.
    """

    def init(context):
        key_head, key_features = jax.random.split(context.key)
        dim, num_classes = context.params["head"]["kernel"].shape
        return MethodState(
            {
                "features": jax.random.normal(key_features, (num_classes, images_per_class, dim)),
                "head": new_head(key_head, context.params["head"]),
            }
        )

    def before_training(client: Client) -> PyTree:
        def of_class(c):
            key = jax.random.fold_in(client.key, c)
            batch = client.sample_class(key, c, sample_size * repeats)
            features = client.teacher(batch).features
            return head_gradient(client.server["head"], features, c, batch.where)

        return jax.lax.map(of_class, jnp.arange(client.info.num_classes))

    def make_upload(client, result):
        held = (client.class_counts > 0).astype(jnp.float32)
        return Upload(summed={"gradients": result.before_training, "holders": held})

    def update_server_state(match_lr: float, classifier_lr: float, rnd: Round):
        state, holders = rnd.state, rnd.summed["holders"]
        target = jax.tree.map(
            lambda g: g / jnp.maximum(holders, 1).reshape(-1, *[1] * (g.ndim - 1)),
            rnd.summed["gradients"],
        )
        features = match(
            state["features"], state["head"], target, holders > 0, steps=match_steps, lr=match_lr
        )
        key_new, key_train = jax.random.split(rnd.key)
        num_classes = features.shape[0]
        retrained = retrain_head(
            new_head(key_new, state["head"]),
            features.reshape(num_classes * images_per_class, -1),
            jnp.repeat(jnp.arange(num_classes), images_per_class),
            jnp.ones(num_classes * images_per_class, bool),
            key_train,
            epochs=classifier_epochs,
            batch_size=classifier_batch_size,
            lr=classifier_lr,
        )
        return {"features": features, "head": retrained}

    def eval_model(evaluation: Evaluation):
        return with_head(evaluation.params, evaluation.state["head"]), evaluation.stats

    return Method(
        "creff",
        init=init,
        before_training=before_training,
        make_upload=make_upload,
        update_server_state=Partial(update_server_state, match_lr, classifier_lr),
        eval_model=eval_model,
        needs_linear_head=True,
    )


def head_gradient(
    classifier: PyTree, features: jax.Array, c: jax.Array, where: jax.Array
) -> PyTree:
    """Returns the head's gradient of the mean cross-entropy of class ``c``; 0 without rows."""

    def loss(classifier):
        logits = head({"head": classifier}, features)
        labels = jnp.full(logits.shape[:-1], c, jnp.int32)
        return masked_mean(cross_entropy(logits, labels), where)

    return jax.grad(loss)(classifier)


def mismatch(
    features: jax.Array, classifier: PyTree, target: PyTree, known: jax.Array
) -> jax.Array:
    """Measures how much the gradients of the features differ in direction from the target.

    Args:
        features: ``[C, n, D]``.
        classifier: the head at which gradients are taken.
        target: gradients ``[C, ...]`` of the clients.
        known: bool ``[C]``, the classes that have a target.

    Returns:
        The sum of 1 - cosine over the known classes, for each class's row of the kernel and for the
        bias.
    """

    def of_class(features, c, target):
        made = head_gradient(classifier, features, c, jnp.ones(features.shape[0], bool))
        return sum(
            jnp.sum(1 - _cosine(jnp.atleast_2d(a.T), jnp.atleast_2d(b.T)))
            for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(target), strict=True)
        )

    each = jax.vmap(of_class)(features, jnp.arange(features.shape[0]), target)
    return jnp.sum(jnp.where(known, each, 0.0))


def match(
    features: jax.Array,
    classifier: PyTree,
    target: PyTree,
    known: jax.Array,
    *,
    steps: int,
    lr: float,
) -> jax.Array:
    """Minimises :func:`mismatch` over the features by gradient descent."""

    def body(features, _):
        gradient = jax.grad(mismatch)(features, classifier, target, known)
        return optax.tree.add_scale(features, -lr, gradient), None

    return jax.lax.scan(body, features, None, length=steps)[0]


def _cosine(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the cosines of rows ``[n, d]``; values and gradients are finite for zero rows."""

    def length(rows):
        square = jnp.sum(jnp.square(rows), -1)
        return jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (square > 0)

    return jnp.sum(a * b, -1) / (length(a) * length(b) + 1e-6)
