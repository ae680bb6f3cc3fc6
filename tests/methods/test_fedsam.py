"""FedSAM and FedASAM: where the gradient is taken, and what does not see the perturbation."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods.base import Aux, Method
from fedjax_skew.methods.fedsam import fedasam, fedsam


def take(method, params, curvature, lr=0.1):
    """A step on ``sum curvature / 2 w^2`` that records the points of its gradients."""
    points = []

    def grad(at, batch):
        points.append(at)
        return jax.tree.map(jnp.multiply, curvature, at), Aux(0.0, {"pass": len(points)}, None)

    step = types.SimpleNamespace(
        params=params,
        batches=(None,),
        opt_state=(),
        scratch=None,
        grad=grad,
        descend=lambda p, g, o: (optax.tree.add_scale(p, -lr, g), o),
    )
    return method.step(step), points


@pytest.mark.parametrize("method", [fedsam(rho=0.0), fedasam(rho=0.0)])
def test_without_perturbation_it_is_fedavg(method, take_step):
    for momentum in (0.0, 0.9):
        plain = take_step(Method("fedavg"), momentum=momentum)
        found = take_step(method, momentum=momentum)
        jax.tree.map(np.testing.assert_array_equal, found.params, plain.params)
        jax.tree.map(np.testing.assert_array_equal, found.opt_state, plain.opt_state)


def test_step_by_hand():
    """g = (3, 4) at w = (3, 2), so e = 0.5 (0.6, 0.8)."""
    params = {"kernel": jnp.array([3.0]), "bias": jnp.array([2.0])}
    curvature = {"kernel": jnp.array([1.0]), "bias": jnp.array([2.0])}
    result, points = take(fedsam(rho=0.5), params, curvature)
    np.testing.assert_allclose(points[1]["kernel"], 3.3, rtol=1e-6)
    np.testing.assert_allclose(points[1]["bias"], 2.4, rtol=1e-6)
    np.testing.assert_allclose(result.params["kernel"], 3 - 0.1 * 3.3, rtol=1e-6)
    np.testing.assert_allclose(result.params["bias"], 2 - 0.1 * 4.8, rtol=1e-6)


def test_adaptive_step_by_hand():
    """t = (|-3| + 1, 1 for the bias); t g = (-12, 4)."""
    params = {"kernel": jnp.array([-3.0]), "bias": jnp.array([2.0])}
    curvature = {"kernel": jnp.array([1.0]), "bias": jnp.array([2.0])}
    _, points = take(fedasam(rho=0.5, eta=1.0), params, curvature)
    norm = np.hypot(12, 4)
    np.testing.assert_allclose(points[1]["kernel"], -3 - 0.5 * 16 * 3 / norm, rtol=1e-6)
    np.testing.assert_allclose(points[1]["bias"], 2 + 0.5 * 4 / norm, rtol=1e-6)


def test_statistics_come_from_the_first_pass():
    params = {"kernel": jnp.array([3.0])}
    result, points = take(fedsam(), params, params)
    assert len(points) == 2 and result.aux.stats == {"pass": 1}


def test_a_zero_gradient_does_no_harm():
    params = {"kernel": jnp.zeros(2), "bias": jnp.zeros(1)}
    for method in (fedsam(), fedasam()):
        result, _ = take(method, params, jax.tree.map(jnp.ones_like, params))
        jax.tree.map(lambda a: np.testing.assert_array_equal(a, 0), result.params)


def test_weight_averaging_takes_every_cycle_of_the_last_quarter(
    make_init_context, make_round, info
):
    info = dataclasses.replace(info, rounds=8)
    method = fedsam(swa=True, swa_cycle=1)
    one = {"w": jnp.float32(1)}
    state = method.init(dataclasses.replace(make_init_context(), params=one)).server
    for r in range(8):
        rnd = make_round(
            info=info,
            round=jnp.int32(r),
            params={"w": jnp.float32(r)},
            mean_delta=one,
            state=state,
        )
        result = method.server(rnd)
        state = result.state
        found, _ = method.eval_model(
            types.SimpleNamespace(params=result.params, stats={}, state=state)
        )
        assert float(found["w"]) == {7: 7.5}.get(r, r + 1)
