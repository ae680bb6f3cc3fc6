"""BalanceFL. Shuai et al., BalanceFL: Addressing Class Imbalance in Long-Tail Federated Learning,
IPSN 2022.

Each sample of a batch is drawn with replacement from a random class; an epoch has as many draws as
the client has samples. The loss has three terms:

- the cross-entropy among the classes present in the batch, on noisy features. A sample receives
  noise with probability ``1 - n_y / max n``, from a Gaussian with the mean within-class covariance
  of the global model's features on the client's data;
- plus ``lam`` times the divergence from the global model, at a temperature, among the classes
  absent from the batch;
- minus ``smooth`` times the sum over the batch of the entropy among the classes present.

The optimiser is Adam, whose moments clients keep between rounds; the run's momentum has no effect.
Adam's steps do not shrink with the gradient, so its learning rate is ``lr_scale`` times
``client_lr``; the authors use 0.005. The distillation term is the divergence instead of the
authors' cross-entropy, which has the same gradient. The authors' network without head bias and with
doubled logits is not implemented.
"""

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew import losses
from fedjax_skew.checks import NonNegative, Positive, PositiveInt, validated
from fedjax_skew.methods.base import Client, Method, nonzero
from fedjax_skew.methods.class_sums import add_batch, class_means, zero_sums
from fedjax_skew.models.functional import head


@validated("hparams.balancefl")
def balancefl(
    *,
    lam: NonNegative = 1.0,
    temperature: Positive = 2.0,
    smooth: NonNegative = 0.002,
    num_draws: PositiveInt = 500,
    lr_scale: Positive = 0.1,
) -> Method:
    """Combines balanced batches, noise for rare classes and distillation of absent classes.

    Args:
        lam: weight of the distillation.
        temperature: temperature of the distillation.
        smooth: weight of the entropy.
        num_draws: number of noise vectors drawn per round; each noisy sample uses one of them.
        lr_scale: Adam's learning rate as a multiple of ``client_lr``.
    """

    def loss(context):
        batch, outputs, client = context.batch, context.outputs, context.client
        noise_key, row_key = jax.random.split(context.key)
        counts = client.class_counts
        rare = 1 - counts / jnp.maximum(jnp.max(counts), 1)
        noisy = jax.random.uniform(noise_key, batch.labels.shape) < rare[batch.labels]
        rows = jax.random.randint(row_key, batch.labels.shape, 0, num_draws)
        noise = jnp.where(noisy[:, None], context.scratch[rows], 0.0)
        logits = head(context.params, outputs.features + noise)
        present = batch_counts(context)
        return context.mean(losses.balanced_softmax(logits, batch.labels, present, tau=0.0))

    def regularizer(weights, temperature, context):
        batch, logits, present = context.batch, context.outputs.logits, batch_counts(context)
        total = 0.0
        if "lam" in weights:
            teacher = context.client.teacher(batch, train=True).logits
            distilled = losses.vacant_class_distillation(
                logits / temperature, teacher / temperature, present
            )
            total = total + weights["lam"] * context.mean(distilled)
        if "smooth" in weights:
            entropy = losses.prediction_entropy(logits, present, where=batch.where)
            total = total - weights["smooth"] * jnp.sum(entropy)
        return total

    weights = nonzero(lam=lam, smooth=smooth)
    return Method(
        "balancefl",
        loss=loss,
        regularizer=Partial(regularizer, weights, temperature) if weights else None,
        scratch=lambda client: draw_noise(client, num_draws),
        optimizer=optax.chain(optax.scale_by_adam(), optax.scale(lr_scale)),
        keep_optimizer_state=True,
        balanced_batches=True,
        needs_linear_head=True,
    )


def batch_counts(context) -> jax.Array:
    """Returns the number of valid samples per class in the batch ``[C]``."""
    member = jax.nn.one_hot(context.batch.labels, context.client.info.num_classes)
    return jnp.sum(member * context.batch.where[:, None], 0)


def draw_noise(client: Client, number: int) -> jax.Array:
    """Draws noise ``[number, D]`` with the client's mean within-class covariance.

    A sum of centred features with standard normal factors has the same covariance as the features,
    so that the matrix is never formed. Each class contributes its unbiased covariance, weighted by
    the share of the class in the client's data.
    """
    means = class_means(
        client.fold(
            lambda sums, batch: add_batch(sums, client.teacher(batch).features, batch),
            zero_sums(client),
        )
    )
    counts = client.class_counts
    share = counts / jnp.maximum(client.num_samples, 1) / jnp.maximum(counts - 1, 1)
    key = jax.random.fold_in(client.key, 0)

    def add(carry, batch):
        draws, step = carry
        centred = client.teacher(batch).features - means[batch.labels]
        factor = jax.random.normal(jax.random.fold_in(key, step), (number, centred.shape[0]))
        factor = factor * jnp.where(batch.where, jnp.sqrt(share[batch.labels]), 0.0)
        return draws + factor @ centred, step + 1

    zero = jnp.zeros((number, means.shape[1])), jnp.int32(0)
    return client.fold(add, zero)[0]
