"""FedGen. Zhu, Hong and Zhou, Data-Free Knowledge Distillation for Heterogeneous Federated
Learning, ICML 2021.

The server trains a generator of features with the heads of the clients. Clients train their head on
generated features, and regularise their predictions towards those on generated features of the same
labels. As in the published code, the noise is uniform, the counts of labels drawn in local training
start at 1, both terms apply to the first ``term_steps`` local steps from the second round on, their
weights decay with each round, and the adversarial term of the student has weight 0. The published
models end in a bottleneck of 32 features; here the generator produces the features of the
configured model. The published weights apply to plain SGD, and are multiplied by ``1 - momentum``
so that they have the same effect with momentum: on MNIST (``configs/mnist.py``, momentum 0.9) the
model reaches 91.6 % in 20 rounds with this factor and diverges in round 7 without it.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from fedjax_skew import trees
from fedjax_skew.checks import Fraction, NonNegative, NumSteps, Positive, PositiveInt, validated
from fedjax_skew.losses import cross_entropy, distillation
from fedjax_skew.methods.base import LossContext, Method, MethodState, Round, Upload
from fedjax_skew.models.functional import head
from fedjax_skew.models.norm import Norm

SMALLEST_WEIGHT = 1e-4


class Generator(nn.Module):
    """A generator of features ``[B, latent]`` from noise ``[B, n]`` and labels ``[B]``."""

    hidden: int
    latent: int
    num_classes: int

    @nn.compact
    def __call__(self, noise: jax.Array, labels: jax.Array, train: bool) -> jax.Array:
        """Applies dense, batch normalisation, ReLU and dense to noise and one-hot labels."""
        x = jnp.concatenate([noise, jax.nn.one_hot(labels, self.num_classes)], -1)
        x = nn.relu(Norm(name="norm")(nn.Dense(self.hidden, name="dense0")(x), train))
        return nn.Dense(self.latent, name="dense1")(x)


@validated("hparams.fedgen")
def fedgen(
    *,
    alpha: NonNegative = 10.0,
    beta: NonNegative = 10.0,
    decay: Fraction = 0.98,
    term_steps: NumSteps = 20,
    generator_steps: NumSteps = 50,
    generator_lr: Positive = 3e-4,
    generator_weight_decay: NonNegative = 1e-2,
    batch_size: PositiveInt = 32,
    noise_dim: PositiveInt = 32,
    hidden: PositiveInt = 256,
    diversity: NonNegative = 1.0,
) -> Method:
    """Regularises clients with a feature generator that the server trains on their heads.

    Args:
        alpha: initial weight of the cross-entropy on generated features.
        beta: initial weight of the divergence from predictions on generated features.
        decay: factor per round on both weights and on the generator's learning rate.
        term_steps: number of local steps per round in which the terms apply.
        generator_steps: steps of the generator per round.
        generator_lr: learning rate of the generator's Adam.
        generator_weight_decay: weight decay of the generator's Adam.
        batch_size: generated features per step, on the server and on a client.
        noise_dim: size of the noise.
        hidden: width of the generator.
        diversity: weight of the term that spreads generated features apart.
    """

    def make(params):
        return Generator(hidden, *params["head"]["kernel"].shape)

    def init(context):
        generator = make(context.params)
        variables = generator.init(
            context.key, jnp.zeros((1, noise_dim)), jnp.zeros(1, jnp.int32), False
        )
        return MethodState(
            {
                "params": variables["params"],
                "stats": variables["batch_stats"],
                "opt_state": _direction(generator_weight_decay).init(variables["params"]),
                "available": jnp.asarray(context.class_counts.sum(0) > 0, jnp.float32),
            }
        )

    def generate(client, key, labels):
        state = client.server
        noise = jax.random.uniform(key, (labels.shape[0], noise_dim))
        variables = {"params": state["params"], "batch_stats": state["stats"]}
        return make(client.params).apply(variables, noise, labels, False)

    def regularizer(alpha, beta, decay, context: LossContext) -> jax.Array:
        client, batch = context.client, context.batch
        key_label, key_new, key_same = jax.random.split(context.key, 3)
        labels = jax.random.categorical(
            key_label, jnp.log(client.server["available"]), shape=(batch_size,)
        )
        new = head(context.params, generate(client, key_new, labels))
        teacher = head(context.params, generate(client, key_same, batch.labels))
        age = jnp.power(decay, client.round.astype(jnp.float32))
        first = jnp.maximum(SMALLEST_WEIGHT, alpha * age) * batch_size / client.info.batch_size
        second = jnp.maximum(SMALLEST_WEIGHT, beta * age)
        loss = first * jnp.mean(cross_entropy(new, labels))
        loss += second * context.mean(distillation(context.outputs.logits, teacher))
        loss *= 1 - client.info.momentum
        return jnp.where((client.round > 0) & (context.step < term_steps), loss, 0.0)

    def update_scratch(context: LossContext) -> jax.Array:
        rows = jax.nn.one_hot(context.batch.labels, context.client.info.num_classes)
        return context.scratch + jnp.sum(jnp.where(context.batch.where[:, None], rows, 0.0), 0)

    def make_upload(client, result):
        return Upload(stacked={"head": result.params["head"], "counts": result.scratch})

    def update_server_state(decay, generator_lr, generator_weight_decay, diversity, rnd: Round):
        heads, counts, state = rnd.stacked["head"], rnd.stacked["counts"], rnd.state
        share = counts / jnp.maximum(jnp.sum(counts, 0), 1e-12)
        qualified = jnp.any(counts > 1, 0)
        lr = generator_lr * jnp.power(decay, rnd.round.astype(jnp.float32))
        generator, direction = make(rnd.params), _direction(generator_weight_decay)

        def loss(params, stats, key):
            key_label, key_noise = jax.random.split(key)
            labels = jax.random.categorical(
                key_label, jnp.where(qualified, 0.0, -jnp.inf), shape=(batch_size,)
            )
            noise = jax.random.uniform(key_noise, (batch_size, noise_dim))
            features, new = generator.apply(
                {"params": params, "batch_stats": stats},
                noise,
                labels,
                True,
                mutable=["batch_stats"],
            )
            logits = jax.vmap(lambda h: head({"head": h}, features))(heads)
            ce = cross_entropy(logits, jnp.broadcast_to(labels, logits.shape[:-1]))
            teaching = jnp.sum(jnp.mean(share[:, labels] * ce, -1))
            return teaching + diversity * _sameness(noise, features), new["batch_stats"]

        def step(carry, key):
            params, stats, opt_state = carry
            gradient, stats = jax.grad(loss, has_aux=True)(params, stats, key)
            updates, opt_state = direction.update(gradient, opt_state, params)
            return (optax.tree.add_scale(params, -lr, updates), stats, opt_state), None

        names = ("params", "stats", "opt_state")
        before_training = tuple(state[n] for n in names)
        after, _ = jax.lax.scan(step, before_training, jax.random.split(rnd.key, generator_steps))
        after = trees.select(jnp.any(qualified), after, before_training)
        return {**state, **dict(zip(names, after, strict=True))}

    return Method(
        "fedgen",
        init=init,
        regularizer=Partial(regularizer, alpha, beta, decay),
        scratch=lambda client: jnp.ones(client.info.num_classes),
        update_scratch=update_scratch,
        make_upload=make_upload,
        update_server_state=Partial(
            update_server_state, decay, generator_lr, generator_weight_decay, diversity
        ),
        needs_linear_head=True,
    )


def _direction(weight_decay: float) -> optax.GradientTransformation:
    """Returns Adam without a learning rate, with the weight decay added to the gradient."""
    return optax.chain(optax.add_decayed_weights(weight_decay), optax.scale_by_adam())


def _sameness(noise: jax.Array, features: jax.Array) -> jax.Array:
    """Returns 1 if different noise gives equal features, and less the more they differ."""
    apart = jnp.mean(jnp.square(noise[:, None] - noise[None]), -1)
    moved = jnp.mean(jnp.abs(features[:, None] - features[None]), -1)
    return jnp.exp(-jnp.mean(apart * moved))
