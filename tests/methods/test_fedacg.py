"""FedACG: clients start where the server's momentum looks ahead to."""

import jax
import numpy as np
import optax

from fedjax_skew.methods.base import Evaluation
from fedjax_skew.methods.fedacg import fedacg


def assert_close(a, b, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)


def test_the_model_moves_by_the_momentum_and_the_look_ahead_is_sent(make_round, make_params):
    method, x, m, delta = fedacg(lam=0.5), make_params(1), make_params(2), make_params(3)
    sent = optax.tree.add_scale(x, 0.5, m)
    rnd = make_round(params=sent, mean_delta=delta, state={"params": x, "momentum": m})
    new = method.server(rnd)
    momentum = new.state["momentum"]
    assert_close(momentum, jax.tree.map(lambda m, d: 0.5 * m + d, m, delta))
    assert_close(optax.tree.sub(new.state["params"], x), momentum)
    assert_close(new.params, optax.tree.add_scale(new.state["params"], 0.5, momentum))


def test_the_model_is_evaluated_not_the_look_ahead(make_params):
    evaluation = Evaluation(None, None, make_params(1), {}, {"params": make_params(2)}, *[None] * 3)
    assert_close(fedacg().eval_model(evaluation)[0], make_params(2))


def test_without_momentum_and_tie_it_is_fedavg_with_equal_weights(simulate):
    options = dict(rounds=2, participation=0.5)
    off = {"fedacg": {"lam": 0.0, "beta": 0.0}}
    one = simulate("fedacg", hparams=off, **options)
    plain = simulate("fedavg", hparams={"fedavg": {"uniform_weights": True}}, **options)
    assert_close(one.state.params, plain.state.params)


def test_the_tie_is_twice_fedproxs(make_context):
    context = make_context()
    drift = optax.tree.sub(context.params, context.client.params)
    expected = 1e-3 * optax.tree.vdot(drift, drift)
    np.testing.assert_allclose(fedacg().regularizer(context), expected, rtol=1e-6)
