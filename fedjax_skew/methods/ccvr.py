"""CCVR. Luo et al., No Fear of Heterogeneity: Classifier Calibration for Federated Learning with
Non-IID Data, NeurIPS 2021.

After training, every client sends the count, mean and covariance of its features for each class.
The server pools them, draws features from one Gaussian per class, and trains only the head on them.
The moments are pooled in two passes over the clients: the first computes the means, and the second
the squares around those means. The result is the unbiased covariance of the paper's formula,
without that formula's loss of precision. Training itself does not change, so CCVR can be combined
with any method that does not define its own evaluated model. The powers and other transformations
of the features that the paper uses in some settings are not implemented.
"""

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from fedjax_skew.checks import NonNegative, NumSteps, Positive, PositiveInt, validated
from fedjax_skew.methods.base import Evaluation, Method
from fedjax_skew.methods.server_training import retrain_head, with_head


@validated("hparams.ccvr")
def ccvr(
    *,
    samples_per_class: PositiveInt = 1000,
    epochs: NumSteps = 5,
    head_lr: Positive = 0.01,
    batch_size: PositiveInt = 64,
    ridge: NonNegative = 1e-6,
    every_evaluation: bool = False,
) -> Method:
    """Calibrates the final model's head on features drawn from one Gaussian per class.

    Args:
        samples_per_class: number of features drawn per class.
        epochs: number of passes over these features.
        head_lr: learning rate of the head, which starts from the trained one.
        batch_size: features per step.
        ridge: constant added to the diagonal of the covariances.
        every_evaluation: whether to calibrate for every evaluation instead of only the last one.
    """

    def eval_model(head_lr: float, ridge: float, evaluation: Evaluation):
        def calibrate():
            counts, mean, covariance = pooled_moments(evaluation)
            key_draw, key_train = jax.random.split(evaluation.key)
            features = draw_features(key_draw, mean, covariance, samples_per_class, ridge)
            num_classes = mean.shape[0]
            classifier = retrain_head(
                evaluation.params["head"],
                features.reshape(num_classes * samples_per_class, -1),
                jnp.repeat(jnp.arange(num_classes), samples_per_class),
                jnp.repeat(counts > 0, samples_per_class),
                key_train,
                epochs=epochs,
                batch_size=batch_size,
                lr=head_lr,
            )
            return with_head(evaluation.params, classifier)

        if every_evaluation:
            return calibrate(), evaluation.stats
        params = jax.lax.cond(evaluation.final, calibrate, lambda: evaluation.params)
        return params, evaluation.stats

    return Method("ccvr", eval_model=Partial(eval_model, head_lr, ridge), needs_linear_head=True)


def pooled_moments(evaluation: Evaluation) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns counts ``[C]``, means ``[C, D]`` and covariances ``[C, D, D]`` over all clients."""
    num_features, num_classes = evaluation.params["head"]["kernel"].shape

    def rows(client, batch):
        features = client.teacher(batch).features
        return features, jax.nn.one_hot(batch.labels, num_classes) * batch.where[:, None]

    def sums(client):
        def add(carry, batch):
            features, member = rows(client, batch)
            return carry[0] + jnp.sum(member, 0), carry[1] + member.T @ features

        return client.fold(add, (jnp.zeros(num_classes), jnp.zeros((num_classes, num_features))))

    counts, total = evaluation.sum_clients(sums)
    mean = total / jnp.maximum(counts, 1)[:, None]

    def squares(client):
        def add(carry, batch):
            features, member = rows(client, batch)
            centred = features - mean[batch.labels]
            return carry + jnp.einsum("bc,bd,be->cde", member, centred, centred)

        return client.fold(add, jnp.zeros((num_classes, num_features, num_features)))

    covariance = evaluation.sum_clients(squares) / jnp.maximum(counts - 1, 1)[:, None, None]
    return counts, mean, covariance


def draw_features(
    key: jax.Array, mean: jax.Array, covariance: jax.Array, number: int, ridge: float
) -> jax.Array:
    """Draws Gaussian features ``[C, number, D]``; negative eigenvalues are treated as 0."""

    def one(args):
        key, mean, covariance = args
        values, vectors = jnp.linalg.eigh(covariance)
        scale = jnp.sqrt(jnp.maximum(values, 0.0) + ridge)
        noise = jax.random.normal(key, (number, mean.shape[0]))
        return mean + (noise * scale) @ vectors.T

    return jax.lax.map(one, (jax.random.split(key, mean.shape[0]), mean, covariance))
