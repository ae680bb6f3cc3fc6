"""FedDF: distillation of the client ensemble into the average."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import trees
from fedjax_skew.losses import distillation
from fedjax_skew.methods.feddf import _best, feddf


@pytest.fixture
def fusion(make_round, make_params):
    """A round of two very different clients, whose mean is far from their ensemble."""
    clients = [optax.tree.scale(3.0, make_params(7)), optax.tree.scale(3.0, make_params(8))]
    start = make_params()
    mean = optax.tree.scale(0.5, optax.tree.add(*clients))
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)

    def make(**changes):
        fields = dict(
            mean_delta=optax.tree.sub(mean, start),
            client_params=trees.stack(clients),
            client_stats={},
            unlabelled=jnp.asarray(x),
        )
        return make_round(**{**fields, **changes})

    return make


def distance(rnd, params, x):
    logits = jax.vmap(lambda p: rnd.model.apply(p, {}, x)[0].logits)(rnd.client_params)
    return float(distillation(rnd.model.apply(params, {}, x)[0].logits, logits.mean(0)).mean())


def test_the_student_moves_towards_the_mean_logits_of_the_clients(fusion):
    rnd = fusion()
    method = feddf(steps=200, batch_size=32, server_lr=0.01)
    student = jax.jit(lambda: method.server(rnd).params)()
    average = optax.tree.add(rnd.params, rnd.mean_delta)
    before_training = distance(rnd, average, rnd.unlabelled)
    assert before_training > 0.1
    assert distance(rnd, student, rnd.unlabelled) < 0.2 * before_training


def test_a_skipped_client_does_not_teach(fusion):
    def students(last):
        clients = jax.tree.map(lambda a: a.at[1].multiply(last), fusion().client_params)
        rnd = fusion(client_params=clients, weights=jnp.array([1.0, 0.0]))
        return jax.jit(lambda: feddf(steps=3, batch_size=4).server(rnd).params)()

    jax.tree.map(np.testing.assert_array_equal, students(1.0), students(50.0))


def test_without_any_client_nothing_changes(fusion):
    rnd = fusion(weights=jnp.zeros(2))
    result = jax.jit(lambda: feddf(steps=2, batch_size=4).server(rnd))()
    jax.tree.map(np.testing.assert_array_equal, result.params, rnd.params)


def test_clients_count_equally_and_labels_are_needed_only_for_validation(make_client):
    method = feddf()
    assert float(method.weight(make_client(), None)) == 1.0
    assert method.needs_unlabelled_data and not method.needs_labelled_data
    assert feddf(validation=True).needs_labelled_data


def test_validation_returns_the_best_student():
    # One parameter that grows by 1 a step; sample i is right while it is within x_i of 3.
    def apply(params, stats, x):
        return types.SimpleNamespace(logits=jnp.stack([x - jnp.abs(params - 3), 0 * x], -1)), stats

    rnd = types.SimpleNamespace(
        labelled=(jnp.array([0.5, 1.5, 2.5]), jnp.zeros(3, jnp.int32)),
        model=types.SimpleNamespace(apply=apply),
        key=jax.random.key(0),
        params=jnp.float32(0),
        mean_delta=jnp.float32(0),
        mean_stats={},
    )
    best = _best(rnd, lambda p, s, key: (-p, s), optax.sgd(1.0), 100, 1, 2)
    assert float(best.params) == 3.0


def test_a_bad_hyper_parameter_is_named():
    with pytest.raises(
        ValueError, match=r"hparams\.feddf\.steps=0 is not allowed; it must be a whole number"
    ):
        feddf(steps=0)
