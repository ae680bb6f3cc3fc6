"""FedExP: the formula of the server's step, and what is evaluated."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import trees
from fedjax_skew.methods.base import LocalResult
from fedjax_skew.methods.fedexp import fedexp


def server_step(method, make_client, make_round, deltas, weights, **changes):
    """How far the server went, in units of the mean update."""
    zero = {"w": jnp.zeros(4)}
    deltas = [{"w": jnp.asarray(d, jnp.float32)} for d in deltas]
    uploads = [
        method.make_upload(make_client(), LocalResult(d, {}, zero, None, None)) for d in deltas
    ]
    weights = jnp.asarray(weights, jnp.float32)
    mean = trees.weighted_mean(weights, trees.stack(deltas))
    rnd = make_round(
        params=zero,
        mean_delta=mean,
        weights=weights,
        stacked=jnp.stack([u.stacked for u in uploads]),
        **changes,
    )
    result = method.server(rnd)
    return float(optax.tree.vdot(result.params, mean) / optax.tree.vdot(mean, mean)), result


def test_step_equals_the_formula(make_client, make_round):
    deltas, weights = 3 * np.eye(4)[:3], [0.5, 0.3, 0.2]
    step, result = server_step(fedexp(eps=0.1), make_client, make_round, deltas, weights)
    assert step == pytest.approx(9 / (2 * (9 * (0.25 + 0.09 + 0.04) + 0.1)), rel=1e-5)
    assert step > 1
    np.testing.assert_array_equal(result.state["w"], 0)


def test_step_is_never_below_one(make_client, make_round):
    deltas = [[1.0, 2, 3, 4]] * 3
    step, _ = server_step(fedexp(), make_client, make_round, deltas, [0.5, 0.3, 0.2])
    assert step == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        step, _ = server_step(
            fedexp(), make_client, make_round, rng.normal(size=(3, 4)), [0.5, 0.3, 0.2]
        )
        assert step >= 1 - 1e-6


def test_a_skipped_client_does_not_count(make_client, make_round):
    deltas = [[3.0, 0, 0, 0], [0, 3.0, 0, 0], [0.0] * 4]
    step, _ = server_step(fedexp(eps=0.0), make_client, make_round, deltas, [0.25, 0.75, 0.0])
    assert step == pytest.approx(max(1.0, 9 / (2 * 9 * (0.25**2 + 0.75**2))), rel=1e-5)


def test_eps_of_the_code_grows_with_clients_and_decays(make_client, make_round):
    deltas, weights = np.eye(4)[:3], [1 / 3] * 3
    step, _ = server_step(
        fedexp(eps=0.01, form="code"),
        make_client,
        make_round,
        deltas,
        weights,
        round=jnp.int32(50),
    )
    eps = 0.01 * 3 * 0.998**100
    assert step == pytest.approx(1 / (2 * (1 / 3 + eps)), rel=1e-4)


def test_evaluates_the_mean_of_the_last_two_iterates():
    evaluation = types.SimpleNamespace(
        params={"w": jnp.array(3.0)}, stats={"mean": jnp.array(9.0)}, state={"w": jnp.array(1.0)}
    )
    params, stats = fedexp().eval_model(evaluation)
    assert float(params["w"]) == 2.0 and float(stats["mean"]) == 9.0
    assert fedexp(average=False).eval_model is None  # The last iterate as it is.


def test_before_the_first_round_the_initial_model_is_evaluated(make_init_context):
    context = make_init_context()
    state = fedexp().init(context).server
    jax.tree.map(np.testing.assert_array_equal, state, context.params)
