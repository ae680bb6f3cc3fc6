"""FedProx: a pull towards the round's global model."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from fedjax_skew import losses
from fedjax_skew.methods import build


def test_the_gradient_of_the_term_is_mu_times_the_drift(make_context):
    context = make_context()
    method = build("fedprox", {"fedprox": {"mu": 0.3}})
    view_at = lambda params: make_context(params=params)  # noqa: E731
    gradient = jax.grad(lambda params: method.regularizer(view_at(params)))(context.params)
    expected = optax.tree.scale(0.3, optax.tree.sub(context.params, context.client.params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), gradient, expected)


def test_the_term_is_half_mu_times_the_squared_distance(make_context):
    context = make_context()
    drift = np.concatenate(
        [
            np.ravel(a - b)
            for a, b in zip(
                jax.tree.leaves(context.params), jax.tree.leaves(context.client.params), strict=True
            )
        ]
    ).astype(np.float64)
    found = build("fedprox", {"fedprox": {"mu": 0.3}}).regularizer(context)
    np.testing.assert_allclose(found, 0.15 * drift @ drift, rtol=1e-5)


def test_without_mu_it_is_fedavg():
    without = build("fedprox", {"fedprox": {"mu": 0.0}})
    assert dataclasses.replace(without, name="fedavg") == build("fedavg")


def test_with_mu_clients_stay_nearer(simulate):
    done = simulate("fedprox", hparams={"fedprox": {"mu": 3.0}}, rounds=1)
    free = simulate("fedavg", rounds=1)
    assert done.reports[0].update_norm[0, 0] < 0.7 * free.reports[0].update_norm[0, 0]


def test_fedlc_with_fedprox_has_both_objectives(make_context):
    context = make_context()
    method = build("fedlc+fedprox", {"fedprox": {"mu": 0.5}, "fedlc": {"tau": 0.4}})
    calibrated = losses.fedlc(
        context.outputs.logits, context.batch.labels, context.client.class_counts, tau=0.4
    )
    drift = optax.tree.sub(context.params, context.client.params)
    expected = calibrated[:7].mean() + 0.25 * optax.tree.vdot(drift, drift)
    np.testing.assert_allclose(
        method.loss(context) + method.regularizer(context), expected, rtol=1e-6
    )


@pytest.mark.parametrize("mu", [-0.1, float("nan"), "1", True])
def test_a_bad_mu_is_refused(mu):
    with pytest.raises(ValueError, match=r"hparams\.fedprox\.mu="):
        build("fedprox", {"fedprox": {"mu": mu}})
