"""FedGF: between the local and the global perturbation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_skew.methods.base import LocalResult, Method
from fedjax_skew.methods.fedgf import fedgf
from fedjax_skew.methods.fedsam import fedsam


def sent(method, make_init_context, **changes):
    return {**method.init(make_init_context()).server, **changes}


def test_before_the_first_update_the_step_is_fedsams(take_step, make_client, make_init_context):
    method = fedgf(rho=0.2)
    found = take_step(method, make_client(server=sent(method, make_init_context)))
    expected = take_step(fedsam(rho=0.2))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found.params, expected.params
    )


def test_when_all_rounds_diverged_the_gradient_is_the_perturbed_models(
    take_step, make_client, make_init_context, make_params
):
    method = fedgf(window=2, max_share=1.0)
    server = sent(
        method,
        make_init_context,
        perturbed=make_params(9),
        divergent=jnp.ones(2),
        rounds=jnp.int32(5),
    )
    found = take_step(method, make_client(server=server))
    there = take_step(Method("fedavg"), params=make_params(9))
    step = optax.tree.sub(make_params(9), there.params)
    jax.tree.map(
        lambda a, x, s: np.testing.assert_allclose(a, x - s, atol=1e-6),
        found.params,
        make_params(),
        step,
    )


def test_share_is_that_of_the_rounds_so_far(take_step, make_client, make_init_context, make_params):
    """One divergent round of two, in a window of four, is a half and not a quarter."""

    def step(max_share, **changes):
        method = fedgf(window=4, rho=0.0, max_share=max_share)
        server = sent(method, make_init_context, perturbed=make_params(9), **changes)
        return take_step(method, make_client(server=server)).params

    found = step(1.0, divergent=jnp.array([1.0, 0, 0, 0]), rounds=jnp.int32(2))
    middle = jax.tree.map(lambda a, b: 0.5 * (a + b), make_params(), make_params(9))
    there = take_step(Method("fedavg"), params=middle).params
    expected = optax.tree.add(make_params(), optax.tree.sub(there, middle))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
    capped = step(0.5, divergent=jnp.ones(4), rounds=jnp.int32(9))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), capped, expected)


def test_server_perturbs_against_its_update_and_counts_divergence(make_init_context, make_round):
    method = fedgf(server_rho=0.5, threshold=1.0, window=3)
    params = {"w": jnp.array([1.0, 2.0])}
    delta = {"w": jnp.array([3.0, 4.0])}
    state = {"perturbed": params, "divergent": jnp.zeros(3), "rounds": jnp.int32(0)}
    for distances in ([0.5, 0.9], [0.5, 1.6], [0.0, 5.0], [0.1, 0.1]):
        result = method.server(
            make_round(params=params, mean_delta=delta, state=state, stacked=jnp.array(distances))
        )
        state = result.state
    np.testing.assert_allclose(result.params["w"], [4.0, 6.0])
    np.testing.assert_allclose(state["perturbed"]["w"], [4 - 0.3, 6 - 0.4], rtol=1e-6)
    np.testing.assert_array_equal(state["divergent"], [0, 1, 1])
    assert int(state["rounds"]) == 4


def test_clients_report_their_distance(make_client, make_params):
    x = make_params()
    y = jax.tree.map(lambda p: p + 0.5, x)
    upload = fedgf().make_upload(make_client(), LocalResult(y, {}, x, None, None))
    size = sum(p.size for p in jax.tree.leaves(x))
    np.testing.assert_allclose(upload.stacked, 0.5 * np.sqrt(size), rtol=1e-5)
