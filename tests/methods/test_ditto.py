"""Ditto: an own model near the global one, beside FedAvg."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_skew.methods.base import Method
from fedjax_skew.methods.ditto import ditto


def own_client(make_client, params):
    return make_client(state={"params": params, "stats": {}})


def test_the_global_trajectory_is_fedavgs_and_absent_clients_keep_their_model(simulate):
    options = dict(rounds=2, participation=0.5, momentum=0.9)
    both = simulate("ditto", **options)
    plain = simulate("fedavg", hparams={"fedavg": {"uniform_weights": True}}, **options)
    jax.tree.map(np.testing.assert_array_equal, both.state.params, plain.state.params)
    first = simulate("ditto", rounds=1, participation=0.5, momentum=0.9)
    own = [np.asarray(d.state.clients.method["params"]["head"]["kernel"][0]) for d in (first, both)]
    unchanged = (own[0] == own[1]).all((1, 2))
    assert unchanged.any() and not unchanged.all()


def test_without_a_tie_the_own_model_is_trained_alone(take_step, make_client, make_params):
    client = own_client(make_client, make_params(5))
    done = take_step(ditto(lam=0.0), client)
    alone = take_step(Method("fedavg"), client, params=make_params(5))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7),
        done.scratch["params"],
        alone.params,
    )


def test_a_tie_of_one_over_the_rate_puts_the_own_model_on_the_global_one(
    take_step, make_client, make_params, make_batches
):
    """With an objective that has no gradient."""
    (batch,) = make_batches()
    nothing = batch._replace(where=jnp.zeros(8, bool))
    client = own_client(make_client, make_params(5))
    done = take_step(ditto(lam=10.0), client, batches=(nothing,))
    away = optax.tree.norm(optax.tree.sub(done.scratch["params"], client.params))
    assert float(away) < 1e-6
