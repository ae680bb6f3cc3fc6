"""FedBE: sampled teachers, sharpened targets, averaged student."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import trees
from fedjax_skew.losses import distillation
from fedjax_skew.methods.fedbe import _estimate_stats, fedbe, sample_gaussian


@pytest.fixture
def fusion(make_round, make_params):
    clients = [optax.tree.scale(3.0, make_params(s)) for s in (7, 8, 9)]
    start = make_params()
    mean = optax.tree.scale(1 / 3, optax.tree.add(clients[0], optax.tree.add(*clients[1:])))
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    return make_round(
        weights=jnp.array([0.5, 0.25, 0.25]),
        mean_delta=optax.tree.sub(mean, start),
        client_params=trees.stack(clients),
        client_stats={},
        unlabelled=jnp.asarray(x),
    )


def test_gaussian_models_follow_the_scaled_updates_of_each_tensor(fusion):
    made = jax.jit(lambda key: sample_gaussian(fusion, key, 4000, 0.1))(jax.random.key(0))
    start = np.asarray(fusion.params["head"]["kernel"], np.float64)
    delta = np.asarray(fusion.client_params["head"]["kernel"], np.float64) - start
    length = np.sqrt((delta**2).sum((1, 2)))
    unit = delta / length[:, None, None]
    mean = start + length.mean() * unit.mean(0)
    spread = length.mean() * 0.1 * np.sqrt(np.maximum(unit.var(0), 1e-5))
    found = np.asarray(made["head"]["kernel"])
    np.testing.assert_allclose(found.mean(0), mean, atol=4 * spread.max() / np.sqrt(4000))
    np.testing.assert_allclose(found.std(0), spread, rtol=0.1)


@pytest.mark.parametrize("sampling", ["gaussian", "dirichlet"])
def test_the_student_moves_towards_the_sharpened_ensemble(fusion, sampling):
    method = fedbe(sampling=sampling, num_models=2, epochs=60, batch_size=20, server_lr=0.1)
    student = jax.jit(lambda: method.server(fusion).params)()
    logits = jax.vmap(lambda p: fusion.model.apply(p, {}, fusion.unlabelled)[0].logits)(
        fusion.client_params
    )
    target = 2 * jnp.log(jax.nn.softmax(logits).mean(0))

    def distance(params):
        own = fusion.model.apply(params, {}, fusion.unlabelled)[0].logits
        return float(distillation(own, target).mean())

    assert distance(student) < 0.7 * distance(optax.tree.add(fusion.params, fusion.mean_delta))


def test_the_student_is_the_mean_of_weights_along_the_way(fusion):
    # Two steps of which SWA takes the first, or both: the mean lies halfway to the second.
    def student(every):
        method = fedbe(num_models=1, epochs=1, batch_size=20, swa_every=every, momentum=0.0)
        return jax.jit(lambda: method.server(fusion).params)()

    first, mean = student(2), student(1)
    average = optax.tree.add(fusion.params, fusion.mean_delta)
    step = float(optax.tree.norm(optax.tree.sub(first, average)))
    assert step > 0
    moved = float(optax.tree.norm(optax.tree.sub(mean, average)))
    assert 1.2 * step < moved < 1.8 * step


def test_running_statistics_are_those_of_the_server_data():
    x = jnp.asarray(np.random.default_rng(0).normal(5.0, 1.0, (400, 1)), jnp.float32)

    def apply(params, stats, batch, train):
        return None, {"mean": 0.9 * stats["mean"] + 0.1 * batch.mean()}

    rnd = types.SimpleNamespace(unlabelled=x, model=types.SimpleNamespace(apply=apply))
    stats = _estimate_stats(rnd, {}, {"mean": jnp.float32(-40)}, jax.random.key(0), 128)
    np.testing.assert_allclose(stats["mean"], 5.0, atol=0.35)
    assert _estimate_stats(rnd, {}, {}, jax.random.key(0), 128) == {}
