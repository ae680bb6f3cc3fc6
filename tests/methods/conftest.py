"""Hand-made records, so that the hooks of a method can be called without a simulation."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.engine.local import LocalSpec, local_step
from fedjax_skew.methods.base import Batch, Client, InitContext, LossContext, Round, RunInfo
from fedjax_skew.models.functional import from_module

CLASSES, DIM, WIDTH = 4, 6, 5


class Tiny(nn.Module):
    """One hidden layer and a head, as the models of the package have it."""

    @nn.compact
    def __call__(self, x, *, train, where=None):
        features = nn.tanh(nn.Dense(WIDTH, name="hidden")(x))
        return nn.Dense(CLASSES, name="head")(features), features


@pytest.fixture(scope="session")
def tiny_model():
    return from_module(Tiny(), lambda x: x)


@pytest.fixture(scope="session")
def make_params(tiny_model):
    """``make_params(seed)`` draws parameters of the tiny model."""
    return lambda seed=0: tiny_model.init(jax.random.key(seed), jnp.zeros((1, DIM)))[0]


@pytest.fixture(scope="session")
def info():
    return RunInfo(
        num_clients=5,
        num_classes=CLASSES,
        cohort_size=2,
        rounds=3,
        batch_size=8,
        momentum=0.0,
        weight_decay=0.0,
    )


@pytest.fixture(scope="session")
def make_init_context(tiny_model, make_params, info):
    """``make_setup(class_counts)`` is what ``init`` sees; 5 clients, 4 classes."""

    def make(class_counts=None):
        if class_counts is None:
            class_counts = np.arange(5 * CLASSES).reshape(5, CLASSES)
        return InitContext(info, tiny_model, make_params(), {}, class_counts, jax.random.key(0))

    return make


@pytest.fixture(scope="session")
def make_client(tiny_model, make_params, info):
    """A client with 22 samples of 3 of the 4 classes; keywords change its fields."""

    def make(**changes):
        counts = jnp.array([12.0, 8.0, 2.0, 0.0])
        fields = dict(
            info=info,
            model=tiny_model,
            params=make_params(),
            stats={},
            id=jnp.int32(0),
            class_counts=counts,
            num_samples=counts.sum(),
            num_steps=jnp.int32(3),
            round=jnp.int32(0),
            lr=jnp.float32(0.1),
            key=jax.random.key(1),
            state=None,
            server=None,
            fold=None,
            sample_class=None,
        )
        return Client(**{**fields, **changes})

    return make


@pytest.fixture(scope="session")
def make_context(make_client, make_params):
    """A batch of 8 rows, the last of them padding, seen by a local model other than the global."""

    def make(client=None, **changes):
        client = client or make_client()
        rng = np.random.default_rng(2)
        labels = jnp.array([0, 1, 0, 2, 1, 0, 1, 3], jnp.int32)
        where = jnp.arange(8) < 7
        batch = Batch(jnp.asarray(rng.normal(size=(8, DIM)), jnp.float32), labels, where)
        batch = changes.pop("batch", batch)
        params = changes.pop("params", None) or make_params(3)
        outputs, _ = client.model.apply(params, client.stats, batch.x, train=True)
        context = LossContext(
            client=client,
            params=params,
            outputs=outputs,
            batch=batch,
            scratch=None,
            step=jnp.int32(0),
            epoch_start=jnp.bool_(True),
            key=jax.random.key(4),
        )
        return dataclasses.replace(context, **changes)

    return make


@pytest.fixture(scope="session")
def make_round(tiny_model, make_params, info):
    """A round of two clients with equal weights; keywords change its fields."""

    def make(**changes):
        fields = dict(
            info=info,
            model=tiny_model,
            params=make_params(),
            stats={},
            mean_delta=make_params(5),
            mean_stats={},
            weights=jnp.array([0.5, 0.5]),
            ids=jnp.array([3, 1]),
            num_samples=jnp.array([30.0, 10.0]),
            num_steps=jnp.array([4, 2]),
            class_counts=jnp.ones((2, CLASSES)),
            stacked=None,
            summed=None,
            client_params=None,
            client_stats=None,
            state=None,
            round=jnp.int32(0),
            lr=jnp.float32(0.1),
            key=jax.random.key(6),
            labelled=None,
            unlabelled=None,
        )
        return Round(**{**fields, **changes})

    return make


@pytest.fixture(scope="session")
def make_batches():
    """``make_batches(n)`` draws n full batches of 8 rows."""

    def make(number=1):
        rng = np.random.default_rng(7)
        return tuple(
            Batch(
                jnp.asarray(rng.normal(size=(8, DIM)), jnp.float32),
                jnp.asarray(rng.integers(0, CLASSES, 8), jnp.int32),
                jnp.ones(8, bool),
            )
            for _ in range(number)
        )

    return make


@pytest.fixture(scope="session")
def take_step(make_client, make_batches):
    """One real local step of a method: ``take_step(method, client, batches=..., momentum=0.9)``.

    ``after`` is the result of the step before it.
    """

    def take(
        method,
        client=None,
        *,
        params=None,
        batches=None,
        momentum=0.0,
        weight_decay=0.0,
        after=None,
    ):
        client = client or make_client()
        params = client.params if params is None else params
        parts = [optax.identity()]
        parts += [optax.add_decayed_weights(weight_decay)] * (weight_decay > 0)
        parts += [optax.trace(momentum)] * (momentum > 0)
        work = LocalSpec(
            info=client.info,
            model=client.model,
            method=method,
            optimizer=lambda: optax.chain(*parts),
            local_epochs=1,
            local_steps=0,
            drop_last=False,
            augment=lambda x, key: x,
            keep_momentum=False,
            skip_nonfinite=False,
        )
        scratch = method.scratch(client) if method.scratch else None
        return local_step(
            work,
            client,
            after.params if after else params,
            after.aux.stats if after else client.stats,
            after.opt_state if after else work.optimizer().init(params),
            after.scratch if after else scratch,
            make_batches(method.num_batches) if batches is None else batches,
            jnp.int32(1 if after else 0),
            jnp.int32(4),
            jax.random.key(8),
        )

    return take
