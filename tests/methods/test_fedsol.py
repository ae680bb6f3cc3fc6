"""FedSOL: gradients at a point moved along a proximal gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods.base import Method
from fedjax_skew.methods.fedsol import fedsol, perturb


def assert_close(a, b, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)


@pytest.mark.parametrize("variant", ["fixed", "adaptive"])
def test_the_first_local_step_is_fedavgs(take_step, variant):
    plain = take_step(Method("fedavg"))
    assert_close(take_step(fedsol(variant=variant)).params, plain.params)


def test_without_length_it_is_fedavg_anywhere(take_step, make_params):
    plain = take_step(Method("fedavg"), params=make_params(4))
    assert_close(take_step(fedsol(rho=0.0), params=make_params(4)).params, plain.params)


def test_the_fixed_perturbation_has_length_rho_unless_it_is_noise(make_params):
    move = perturb(make_params(1), 0.7, 1e-6)
    np.testing.assert_allclose(optax.tree.norm(move), 0.7, rtol=1e-5)
    noise = optax.tree.scale(1e-9, make_params(1))
    assert float(optax.tree.norm(perturb(noise, 0.7, 1e-6))) == 0
    assert float(optax.tree.norm(perturb(noise, 0.7, 0.0))) > 0.5


def test_the_adaptive_perturbation_is_zero_where_nothing_moved(take_step, make_client, make_params):
    """Only the head has moved, so only it is perturbed; the rest of the step is by hand."""
    client = make_client()
    moved = {**client.params, "head": make_params(4)["head"]}
    done = take_step(fedsol(rho=5.0), client, params=moved)
    plain = take_step(Method("fedavg"), client, params=moved)
    assert float(jnp.abs(done.params["head"]["kernel"] - plain.params["head"]["kernel"]).max()) > 0

    still = take_step(fedsol(rho=5.0, variant="fixed"), client, params=moved)
    apart = jnp.abs(done.params["hidden"]["kernel"] - still.params["hidden"]["kernel"]).max()
    assert float(apart) > 1e-6
