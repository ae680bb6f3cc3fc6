"""SCAFFOLD: variates that sum up, and an optimum that FedAvg misses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods import build
from fedjax_skew.methods.base import LocalResult, Method
from fedjax_skew.methods.composition import compose
from fedjax_skew.methods.fedavg import fedavg
from fedjax_skew.methods.scaffold import scaffold

CURVATURE, TARGET = jnp.array([1.0, 4.0]), jnp.array([0.0, 1.0])
OPTIMUM = 0.8


def quadratic():
    """Client i minimises ``curvature_i / 2 |w - target_i|^2``, whatever its data."""

    def loss(context):
        client = context.client.id
        away = jax.tree.map(lambda p: p - TARGET[client], context.params)
        return 0.5 * CURVATURE[client] * optax.tree.vdot(away, away)

    return Method("quadratic", loss=loss)


def distance(state):
    return max(float(jnp.max(jnp.abs(p - OPTIMUM))) for p in jax.tree.leaves(state.params))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_reaches_the_optimum_of_two_quadratics(simulate, momentum):
    done = simulate(
        compose([quadratic(), scaffold()]),
        num_clients=2,
        rounds=120,
        local_epochs=0,
        local_steps=20,
        client_lr=0.01,
        momentum=momentum,
    )
    assert distance(done.state) < 1e-4
    server, kept = done.state.server["scaffold"], done.state.clients.method["scaffold"]
    jax.tree.map(lambda c, own: np.testing.assert_allclose(c, own.mean(1), atol=1e-4), server, kept)
    # At the optimum a client's variate is its gradient there.
    np.testing.assert_allclose(kept["head"]["bias"][0, 0], OPTIMUM, atol=1e-3)


def test_fedavg_misses_that_optimum(simulate):
    done = simulate(
        compose([quadratic(), fedavg(uniform_weights=True)]),
        num_clients=2,
        rounds=120,
        local_epochs=0,
        local_steps=20,
        client_lr=0.01,
    )
    shrink = 1 - (1 - 0.01 * np.asarray(CURVATURE)) ** 20
    limit = (shrink * np.asarray(TARGET)).sum() / shrink.sum()
    assert distance(done.state) == pytest.approx(OPTIMUM - limit, abs=1e-4)
    assert distance(done.state) > 0.03


@pytest.mark.parametrize("momentum, length", [(0.0, 3.0), (0.5, 1 + 1.5 + 1.75)])
def test_variate_is_the_mean_gradient(make_client, make_params, info, momentum, length):
    x = make_params()
    ones = jax.tree.map(jnp.ones_like, x)
    client = make_client(
        info=dataclasses.replace(info, momentum=momentum),
        state=optax.tree.scale(2.0, ones),
        server=optax.tree.scale(5.0, ones),
    )
    moved = optax.tree.add_scale(x, -0.1 * length * 7.0, ones)
    upload = scaffold().make_upload(client, LocalResult(moved, {}, x, None, None))
    jax.tree.map(lambda a: np.testing.assert_allclose(a, 2 - 5 + 7, rtol=1e-5), upload.state)
    jax.tree.map(lambda a: np.testing.assert_allclose(a, 2.0, rtol=1e-5), upload.summed)


def test_absent_clients_count_in_the_servers_variate(make_round, make_params):
    ones = jax.tree.map(jnp.ones_like, make_params())
    state = scaffold().update_server_state(
        make_round(state=ones, summed=optax.tree.scale(10.0, ones))
    )
    jax.tree.map(lambda c: np.testing.assert_allclose(c, 1 + 10 / 5), state)


def test_server_lr_scales_the_mean_update(make_round):
    rnd = make_round()
    result = scaffold(server_lr=0.5).server(rnd)
    expected = optax.tree.add_scale(rnd.params, 0.5, rnd.mean_delta)
    jax.tree.map(np.testing.assert_array_equal, result.params, expected)


def test_goes_with_other_objectives_and_server_rules():
    method = build("fedlc+scaffold+fedadam")
    assert method.correct_gradient and method.loss and method.server


def test_kept_momentum_is_refused(make_init_context, info):
    context = dataclasses.replace(
        make_init_context(), info=dataclasses.replace(info, keep_momentum=True)
    )
    with pytest.raises(
        ValueError, match="keep_momentum=True is incompatible with method='scaffold'"
    ):
        scaffold().init(context)
