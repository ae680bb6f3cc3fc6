"""MOON: features near the global model's, away from those of the client's previous model."""

import jax
import numpy as np
import optax
import pytest

from fedjax_skew.methods import build
from fedjax_skew.methods.base import LocalResult


def cosine(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_the_loss_is_zero_until_the_client_has_a_previous_model(
    make_init_context, make_client, make_context
):
    method = build("moon")
    kept = method.init(make_init_context()).client
    client = make_client(state=kept)
    regularizer = lambda params: method.regularizer(make_context(client, params=params))  # noqa: E731
    value, gradient = jax.value_and_grad(regularizer)(make_context().params)
    assert float(value) == 0.0 and float(optax.tree.norm(gradient)) == 0.0


def test_the_loss_contrasts_global_and_previous_features(make_client, make_context, make_params):
    method = build("moon", {"moon": {"mu": 2.0, "temperature": 0.5}})
    result = LocalResult(make_params(7), {}, None, None, None)
    kept = method.make_upload(make_client(), result).state
    client = make_client(state=kept)
    context = make_context(client)
    features = lambda p: np.asarray(client.model.apply(p, {}, context.batch.x)[0].features)  # noqa: E731
    z, near, far = (features(p) for p in (context.params, client.params, make_params(7)))
    a, b = np.exp(cosine(z, near) / 0.5), np.exp(cosine(z, far) / 0.5)
    expected = 2.0 * -np.log(a / (a + b))[:7].mean()
    np.testing.assert_allclose(method.regularizer(context), expected, rtol=1e-4)


def test_clients_keep_the_model_of_their_last_participation(simulate):
    done = simulate("moon", rounds=1, participation=0.5)
    kept = done.state.clients.method
    assert int(kept["seen"].sum()) == 3
    weights = np.diff(done.problem.data.offsets[0]) * np.asarray(kept["seen"][0])
    jax.tree.map(
        lambda k, p: np.testing.assert_allclose(
            np.average(k[0], axis=0, weights=weights), p[0], atol=1e-6
        ),
        kept["params"],
        done.state.params,
    )


def test_a_projection_head_is_optional():
    assert build("moon").projection == 0
    assert build("moon", {"moon": {"projection": 256}}).projection == 256
    with pytest.raises(ValueError, match=r"hparams\.moon\.projection=2\.5"):
        build("moon", {"moon": {"projection": 2.5}})
