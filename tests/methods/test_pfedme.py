"""pFedMe: the Moreau envelope between FedAvg and isolated clients."""

import jax
import numpy as np
import optax
import pytest

from fedjax_skew.methods.base import LocalResult, Method
from fedjax_skew.methods.composition import compose
from fedjax_skew.methods.pfedme import pfedme


def test_large_lambda_approaches_fedavg(take_step, make_params):
    step = optax.tree.sub(take_step(Method("fedavg")).params, make_params())
    errors = []
    for lam in (3.0, 30.0, 300.0):
        method = pfedme(lam=lam, inner_lr=1 / lam, mu=0.0)
        found = optax.tree.sub(take_step(method).params, make_params())
        errors.append(float(optax.tree.norm(optax.tree.sub(found, step)) / optax.tree.norm(step)))
    assert errors[0] > 4 * errors[1] > 16 * errors[2]
    assert errors[2] < 5e-3


def test_inner_steps_by_hand(take_step, make_params):
    """On a quadratic each inner step is affine: theta <- theta - 0.1 (2 theta + 4 (theta - w))."""
    quadratic = Method(
        "quadratic", loss=lambda context: optax.tree.vdot(context.params, context.params)
    )
    method = compose([quadratic, pfedme(lam=4.0, inner_lr=0.1, inner_steps=2, mu=0.0)])
    result = take_step(method)
    factor = 1.0
    for _ in range(2):
        factor -= 0.1 * (2 * factor + 4 * (factor - 1))
    w = make_params()
    jax.tree.map(
        lambda t, w: np.testing.assert_allclose(t, factor * w, rtol=1e-5),
        result.scratch["pfedme"],
        w,
    )
    jax.tree.map(
        lambda p, w: np.testing.assert_allclose(p, w - 0.1 * 4 * (1 - factor) * w, rtol=1e-5),
        result.params,
        w,
    )


def test_own_model_decays_with_mu(take_step, make_params):
    flat = Method(
        "flat", loss=lambda context: 0.0 * optax.tree.vdot(context.params, context.params)
    )
    method = compose([flat, pfedme(lam=1.0, inner_lr=0.1, inner_steps=1, mu=0.5)])
    theta = take_step(method).scratch["pfedme"]
    jax.tree.map(
        lambda t, w: np.testing.assert_allclose(t, 0.95 * w, rtol=1e-5), theta, make_params()
    )


def test_a_client_keeps_its_own_model_and_a_new_one_has_the_global(
    make_client, make_params, make_init_context
):
    method = pfedme()
    fresh = make_client(state=method.init(make_init_context()).client, params=make_params(9))
    jax.tree.map(np.testing.assert_array_equal, method.personal(fresh)[0], make_params(9))
    result = LocalResult(make_params(1), {}, make_params(0), make_params(2), None)
    kept = method.make_upload(make_client(), result).state
    trained = make_client(state=kept, params=make_params(9))
    jax.tree.map(np.testing.assert_array_equal, method.personal(trained)[0], make_params(2))


def test_server_goes_beta_of_the_way(make_round):
    rnd = make_round()
    found = pfedme(beta=2.0).server(rnd).params
    jax.tree.map(
        lambda a, x, d: np.testing.assert_allclose(a, x + 2 * d, rtol=1e-5, atol=1e-6),
        found,
        rnd.params,
        rnd.mean_delta,
    )
    assert pfedme().server is None


def test_an_inner_rate_that_diverges_is_refused():
    with pytest.raises(ValueError, match=r"hparams\.pfedme\.inner_lr=0\.2 diverges with lam=15"):
        pfedme(lam=15, inner_lr=0.2)
