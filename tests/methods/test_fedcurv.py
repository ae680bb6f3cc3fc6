"""FedCurv: a quadratic penalty from every other client's Fisher information."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods import build
from fedjax_skew.methods.base import Batch, LocalResult


def fedcurv(**hparams):
    return build("fedcurv", {"fedcurv": hparams})


def make_fold(x, labels, size=8):
    """A client's pass over its data, in batches of ``size``, the last one padded."""

    def fold(fn, carry, key=None, batches=0):
        for start in range(0, size * batches if batches else len(x), size):
            at = jnp.arange(start, start + size)
            where, at = at < len(x), jnp.minimum(at, len(x) - 1)
            carry = fn(carry, Batch(x[at], labels[at], where))
        return carry

    return fold


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(11, 6)), jnp.float32)
    return x, jnp.asarray(rng.integers(0, 4, 11), jnp.int32)


def upload(method, make_client, make_init_context, data, params):
    nothing = method.init(make_init_context()).client
    client = make_client(state=nothing, fold=make_fold(*data))
    make_upload = jax.jit(
        lambda p: method.make_upload(client, LocalResult(p, {}, None, None, None))
    )
    return make_upload(params)


def gradients(tiny_model, params, x, labels):
    """One gradient of cross-entropy a sample."""

    def loss(p, x, y):
        return -jax.nn.log_softmax(tiny_model.apply(p, {}, x[None])[0].logits)[0, y]

    return jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(params, x, labels)


@pytest.mark.parametrize("floats", [2**18, 3 * 59])
def test_the_fisher_information_is_a_mean_over_samples(
    tiny_model, make_client, make_init_context, make_params, data, floats, monkeypatch
):
    monkeypatch.setattr(sys.modules["fedjax_skew.methods.fedcurv"], "_FLOATS", floats)
    params = make_params(5)
    method = fedcurv(fisher_samples=0)
    found = upload(method, make_client, make_init_context, data, params).state.square
    expected = gradients(tiny_model, params, *data)
    jax.tree.map(
        lambda a, g: np.testing.assert_allclose(a, (g**2).mean(0), rtol=1e-4), found, expected
    )


def test_the_batch_form_squares_mean_gradients(
    tiny_model, make_client, make_init_context, make_params, data
):
    params = make_params(5)
    method = fedcurv(fisher="batch", fisher_samples=11)
    found = upload(method, make_client, make_init_context, data, params).state.square
    expected = jax.tree.map(
        lambda g: (g[:8].mean(0) ** 2 + g[8:].mean(0) ** 2) / 2,
        gradients(tiny_model, params, *data),
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, expected)


def test_the_term_is_the_sum_of_the_other_clients_quadratic_forms(
    make_client, make_init_context, make_context, make_round, make_params, data
):
    method = fedcurv(lam=0.3, fisher_samples=8)
    models = [make_params(seed) for seed in (5, 6, 7)]
    sent = [upload(method, make_client, make_init_context, data, p) for p in models]
    summed = jax.tree.map(lambda *a: sum(a), *(u.summed for u in sent))
    server = method.update_server_state(
        make_round(state=method.init(make_init_context()).server, summed=summed)
    )
    context = make_context(make_client(state=sent[1].state, server=server))
    expected = 0.0
    for j in (0, 2):
        apart = jax.tree.map(jnp.square, optax.tree.sub(context.params, models[j]))
        expected += 0.3 * optax.tree.vdot(sent[j].state.square, apart)
    np.testing.assert_allclose(method.regularizer(context), expected, rtol=1e-3)


def test_the_server_holds_the_sum_of_the_clients_latest_parts(simulate):
    done = simulate("fedcurv", participation=0.5, rounds=3)
    server, kept = done.state.server, done.state.clients.method
    jax.tree.map(
        lambda s, k: np.testing.assert_allclose(s, k.sum(1), rtol=1e-4, atol=1e-6), server, kept
    )
    assert float(optax.tree.norm(server.square)) > 0


def test_the_first_round_is_fedavg(make_client, make_init_context, make_context):
    method = fedcurv()
    state = method.init(make_init_context())
    assert (
        float(
            method.regularizer(make_context(make_client(state=state.client, server=state.server)))
        )
        == 0.0
    )
