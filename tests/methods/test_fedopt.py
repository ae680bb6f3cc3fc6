"""Server optimisers against the numbers of the paper's Algorithm 2."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.fedopt import fedadagrad, fedadam, fedavgm, fedopt, fedyogi

UPDATES = [np.array([0.5, -0.02, 0.0]), np.array([-0.1, 0.03, 0.2])]


def run(method, make_round, make_init_context, updates=UPDATES):
    """The parameters after each update, from 0, and the last result."""
    context = dataclasses.replace(make_init_context(), params={"w": jnp.zeros(3)})
    state = method.init(context).server
    w, path, result = jnp.zeros(3), [], None
    for update in updates:
        result = method.server(
            make_round(
                params={"w": w},
                mean_delta={"w": jnp.asarray(update, jnp.float32)},
                mean_stats={"norm": {"mean": jnp.float32(7)}},
                state=state,
            )
        )
        w, state = result.params["w"], result.state
        path.append(np.asarray(w))
    return path, result


def algorithm_2(second, beta1, lr, tau):
    w, m, v, path = np.zeros(3), np.zeros(3), np.full(3, tau**2), []
    for d in UPDATES:
        m = beta1 * m + (1 - beta1) * d
        v = second(v, d * d)
        w = w + lr * m / (np.sqrt(v) + tau)
        path.append(w)
    return path


ADAPTIVE = {
    "fedadagrad": (fedadagrad(server_lr=0.3, tau=0.01), lambda v, d2: v + d2, 0.0),
    "fedadagrad_momentum": (
        fedadagrad(server_lr=0.3, tau=0.01, beta1=0.8),
        lambda v, d2: v + d2,
        0.8,
    ),
    "fedadam": (
        fedadam(server_lr=0.3, tau=0.01, beta1=0.8, beta2=0.9),
        lambda v, d2: 0.9 * v + 0.1 * d2,
        0.8,
    ),
    "fedopt": (
        fedopt(server_lr=0.3, tau=0.01, beta1=0.8, beta2=0.9),
        lambda v, d2: 0.9 * v + 0.1 * d2,
        0.8,
    ),
    "fedyogi": (
        fedyogi(server_lr=0.3, tau=0.01, beta1=0.8, beta2=0.9),
        lambda v, d2: v - 0.1 * d2 * np.sign(v - d2),
        0.8,
    ),
}


@pytest.mark.parametrize("name", ADAPTIVE)
def test_follows_algorithm_2(name, make_round, make_init_context):
    method, second, beta1 = ADAPTIVE[name]
    path, _ = run(method, make_round, make_init_context)
    np.testing.assert_allclose(path, algorithm_2(second, beta1, 0.3, 0.01), rtol=1e-5, atol=1e-7)


def test_first_step_of_fedadam_by_hand(make_round, make_init_context):
    """m = 0.1 * 0.5; v = 0.99e-6 + 0.01 * 0.25; no bias correction."""
    path, _ = run(fedadam(server_lr=1.0, tau=1e-3), make_round, make_init_context)
    np.testing.assert_allclose(path[0][0], 0.05 / (np.sqrt(0.00250099) + 0.001), rtol=1e-5)


@pytest.mark.parametrize(
    "variant, first, second",
    [
        ("undamped", 0.5, 0.8 * 0.5 - 0.1),
        ("damped", 0.1, 0.8 * 0.1 - 0.2 * 0.1),
        ("nesterov", 0.5 + 0.8 * 0.5, -0.1 + 0.8 * (0.8 * 0.5 - 0.1)),
    ],
)
def test_server_momentum_by_hand(variant, first, second, make_round, make_init_context):
    updates = [np.full(3, 0.5), np.full(3, -0.1)]
    path, _ = run(
        fedavgm(beta=0.8, server_lr=2.0, variant=variant), make_round, make_init_context, updates
    )
    np.testing.assert_allclose(path[0], 2 * first, rtol=1e-5)
    np.testing.assert_allclose(path[1], 2 * (first + second), rtol=1e-5)


@pytest.mark.parametrize("method", [fedavgm(), fedadam(), fedyogi(), fedadagrad()])
def test_running_statistics_bypass_the_optimiser(method, make_round, make_init_context):
    _, result = run(method, make_round, make_init_context)
    assert float(result.stats["norm"]["mean"]) == 7.0


def test_momentum_zero_is_fedavg(make_round, make_init_context):
    path, _ = run(fedavgm(beta=0.0), make_round, make_init_context)
    np.testing.assert_allclose(path, np.cumsum(UPDATES, 0), rtol=1e-6)


def test_wrong_values_are_refused_by_name():
    with pytest.raises(
        ValueError, match=r"hparams\.fedopt\.tau=0 is not allowed; it must be a number above 0"
    ):
        fedopt(tau=0)
    with pytest.raises(ValueError, match="Did you mean 'damped'"):
        fedavgm(variant="dampd")
