"""FedCM: local gradients mixed with the mean direction of the last round."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods.base import LocalResult
from fedjax_skew.methods.fedcm import fedcm


def assert_close(a, b, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)


def test_with_alpha_one_it_is_fedavg(simulate):
    options = dict(rounds=2, participation=0.5)
    mixed = simulate("fedcm", hparams={"fedcm": {"alpha": 1.0}}, **options)
    plain = simulate("fedavg", hparams={"fedavg": {"uniform_weights": True}}, **options)
    assert_close(mixed.state.params, plain.state.params)


def test_the_first_round_is_fedavg_at_alpha_times_the_rate(simulate):
    mixed = simulate("fedcm", rounds=1, client_lr=0.5, hparams={"fedcm": {"alpha": 0.1}})
    plain = simulate(
        "fedavg", rounds=1, client_lr=0.05, hparams={"fedavg": {"uniform_weights": True}}
    )
    assert_close(mixed.state.params, plain.state.params)


def test_the_direction_is_the_gradient_whatever_the_number_of_steps(make_client, make_params):
    """Clients that see one constant gradient send exactly that."""
    method, gradient = fedcm(), make_params(4)
    for steps in (1, 7):
        client = make_client(num_steps=jnp.int32(steps))
        end = optax.tree.add_scale(client.params, -0.1 * steps, gradient)
        sent = method.make_upload(client, LocalResult(end, {}, client.params, None, None)).summed
        assert_close(sent, gradient, 1e-5)


def test_the_server_keeps_the_plain_mean(make_round, make_params):
    method, summed = fedcm(), make_params(2)
    state = method.update_server_state(
        make_round(state=make_params(1), summed=summed, weights=jnp.array([0.9, 0.1]))
    )
    assert_close(state, optax.tree.scale(0.5, summed))
    nobody = make_round(state=make_params(1), summed=summed, weights=jnp.zeros(2))
    assert_close(method.update_server_state(nobody), make_params(1))


def test_kept_momentum_is_refused(simulate):
    with pytest.raises(ValueError, match="keep_momentum=True is incompatible with method='fedcm'"):
        simulate("fedcm", momentum=0.9, keep_momentum=True)
