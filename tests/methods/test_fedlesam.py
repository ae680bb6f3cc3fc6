"""FedLESAM: gradients at a point moved against the last global update."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods.base import Method
from fedjax_skew.methods.fedlesam import fedlesam, perturb_code


def assert_close(a, b, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)


def known(params, seen=True):
    return {"params": params, "seen": jnp.bool_(seen)}


def test_the_perturbation_has_length_rho_against_the_last_update(make_client, make_params):
    client = make_client(state=known(make_params(4)))
    move = fedlesam(rho=0.3).scratch(client)
    np.testing.assert_allclose(optax.tree.norm(move), 0.3, rtol=1e-5)
    update = optax.tree.sub(client.params, make_params(4))
    cosine = optax.tree.vdot(move, update) / (0.3 * optax.tree.norm(update))
    np.testing.assert_allclose(cosine, -1.0, rtol=1e-5)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_the_first_participation_is_fedavg(make_client, make_params, form):
    client = make_client(state=known(make_params(4), seen=False))
    assert float(optax.tree.norm(fedlesam(form=form).scratch(client))) == 0
    unmoved = make_client(state=known(make_params()))
    assert float(optax.tree.norm(fedlesam(form=form).scratch(unmoved))) == 0


def test_a_step_takes_one_gradient_at_the_moved_point(take_step, make_client, make_params):
    client = make_client(state=known(make_params(4)))
    move = fedlesam(rho=2.0).scratch(client)
    done = take_step(fedlesam(rho=2.0), client)
    there = take_step(Method("fedavg"), client, params=optax.tree.add(client.params, move))
    expected = optax.tree.sub(there.params, move)
    assert_close(done.params, expected)


def test_client_and_server_remember_the_same_under_full_participation(simulate):
    done = [
        simulate("fedlesam", rounds=3, hparams={"fedlesam": {"memory": memory}}).state.params
        for memory in ("client", "server")
    ]
    assert_close(*done)


def test_the_authors_code_moves_each_tensor_by_one_scalar():
    back = {"a": jnp.array([3.0, -1.0, 9.0]), "b": jnp.ones((2, 2))}
    move = perturb_code(back, 0.4)
    np.testing.assert_allclose(move["a"], 0.3, rtol=1e-5)
    np.testing.assert_allclose(move["b"], -0.1, rtol=1e-5)
    few = {"a": jnp.array([2.0]), "b": jnp.array([6.0]), "c": jnp.array([0.0])}
    np.testing.assert_allclose(perturb_code(few, 1.0)["b"], 0.75, rtol=1e-5)
