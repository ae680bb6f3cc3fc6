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


@pytest.mark.parametrize("variant", ["fixed", "adaptive"])
def test_a_step_equals_its_formula(take_step, make_client, make_params, make_batches, variant):
    """The head has moved and the rest has not, so that the adaptive variant moves the head only."""
    client, (batch,) = make_client(), make_batches()
    start = {**client.params, "head": make_params(4)["head"]}
    rows = jnp.arange(8)

    def logits(params):
        return client.model.apply(params, {}, batch.x)[0].logits

    def divergence(params):
        target = jax.nn.softmax(logits(client.params) / 3)
        apart = jnp.log(target) - jax.nn.log_softmax(logits(params) / 3)
        return jnp.mean(jnp.sum(target * apart, 1))

    def loss(params):
        return -jnp.mean(jax.nn.log_softmax(logits(params))[rows, batch.labels])

    proximal = jax.grad(divergence)(start)
    away = optax.tree.sub(start, client.params)

    def move(r, moved):
        # Kernels are [inputs, outputs] here; the norm runs over the outputs.
        length = np.sqrt(np.sum(np.square(moved), -1, keepdims=True))
        share = np.abs(moved) / np.maximum(length, 1e-12) if variant == "adaptive" else 1.0
        return 5.0 * share * r / optax.tree.norm(proximal)

    point = optax.tree.add(start, jax.tree.map(move, proximal, away))
    expected = jax.tree.map(lambda w, g: w - 0.1 * g, start, jax.grad(loss)(point))
    done = take_step(fedsol(rho=5.0, variant=variant), client, params=start, batches=(batch,))
    assert_close(done.params, expected)
    plain = take_step(Method("fedavg"), client, params=start, batches=(batch,)).params
    assert float(optax.tree.norm(optax.tree.sub(done.params, plain))) > 1e-3
