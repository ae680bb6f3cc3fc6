"""CCVR. Luo et al., No Fear of Heterogeneity: Classifier Calibration for Federated Learning with
Non-IID Data, NeurIPS 2021.

After training, every client sends the count, mean and covariance of its features for each class.
The server pools them, draws features from one Gaussian a class, and trains the head alone on them.
Pooling is computed in two passes over the clients: sums give the means, and squares around those
means give exactly the unbiased covariance of the paper's formula, without its loss of digits.
Nothing changes in training, so it combines with any method that has no evaluated model of its own.
Powers and other transformations of the features, which the paper uses in some settings, are left
out.
"""

import jax
import jax.numpy as jnp

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
    """The final model's head is calibrated on Gaussian features of all clients' classes.

    Args:
        samples_per_class: features drawn for each class.
        epochs: passes over them.
        head_lr: learning rate of the head, which starts from the trained one.
        batch_size: features in a step.
        ridge: added to the diagonal of the covariances.
        every_evaluation: calibrate for every evaluation instead of the last one only.
    """

    def calibrate(evaluation: Evaluation):
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

    def eval_model(evaluation: Evaluation):
        if every_evaluation:
            return calibrate(evaluation), evaluation.stats
        params = jax.lax.cond(
            evaluation.final, lambda: calibrate(evaluation), lambda: evaluation.params
        )
        return params, evaluation.stats

    return Method("ccvr", eval_model=eval_model, needs_linear_head=True)


def pooled_moments(evaluation: Evaluation) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Counts ``[C]``, means ``[C, D]`` and unbiased covariances ``[C, D, D]`` over all clients."""
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
    """``[C, number, D]`` Gaussian features; eigenvalues that rounding made negative count as 0."""

    def one(args):
        key, mean, covariance = args
        values, vectors = jnp.linalg.eigh(covariance)
        scale = jnp.sqrt(jnp.maximum(values, 0.0) + ridge)
        noise = jax.random.normal(key, (number, mean.shape[0]))
        return mean + (noise * scale) @ vectors.T

    return jax.lax.map(one, (jax.random.split(key, mean.shape[0]), mean, covariance))
