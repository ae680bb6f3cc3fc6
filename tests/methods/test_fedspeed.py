"""FedSpeed: a proximal correction, and gradients at a perturbed point."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_skew.methods.fedsam import fedsam
from fedjax_skew.methods.fedspeed import fedspeed


def assert_close(a, b, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)


def test_without_perturbation_it_is_feddyn(simulate):
    """With one alpha for all clients, and the server's model evaluated."""
    options = dict(rounds=3, participation=0.5, batch_size=240)
    dyn = {"alpha": 0.1, "adapt_alpha": False, "evaluate": "server"}
    speed = simulate("fedspeed", hparams={"fedspeed": {"rho": 0.0, "lamb": 0.1}}, **options)
    assert_close(
        speed.state.params,
        simulate("feddyn", hparams={"feddyn": dyn}, **options).state.params,
        1e-5,
    )


def test_the_first_local_step_is_fedsams(take_step, make_client, make_params):
    client = make_client(state=optax.tree.zeros_like(make_params()))
    assert_close(
        take_step(fedspeed(rho=0.2), client).params, take_step(fedsam(rho=0.2), client).params
    )


def test_without_correction_it_is_not_fedsam(make_round, make_params):
    """The server still adds the mean of the clients' past updates."""
    method, h = fedspeed(lamb=0.0), make_params(4)
    rnd = make_round(state=h)
    new = method.server(rnd)
    expected = jax.tree.map(lambda h, d: h + 2 / 5 * d, h, rnd.mean_delta)
    assert_close(new.state, expected)
    mean = optax.tree.add(rnd.params, rnd.mean_delta)
    assert_close(new.params, optax.tree.add(mean, expected))


def test_the_servers_rules_agree_under_full_participation(simulate):
    done = [
        simulate("fedspeed", rounds=2, hparams={"fedspeed": {"form": form}}).state.params
        for form in ("paper", "code")
    ]
    assert_close(*done, 1e-5)


def test_alpha_mixes_both_gradients(take_step, make_client, make_params):
    client = make_client(state=optax.tree.zeros_like(make_params()))
    none, all_, half = (
        take_step(fedspeed(rho=0.5, lamb=0.0, alpha=a), client).params for a in (0.0, 1.0, 0.5)
    )
    assert_close(half, jax.tree.map(lambda a, b: (a + b) / 2, none, all_))
    assert float(jnp.abs(none["head"]["kernel"] - all_["head"]["kernel"]).max()) > 1e-4
