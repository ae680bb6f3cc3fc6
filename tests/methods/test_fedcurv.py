"""FedCurv: a quadratic penalty from every other client's Fisher information."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import trees
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


def upload(method, make_client, make_setup, data, params):
    nothing = method.init(make_setup()).kept
    client = make_client(kept=nothing, fold=make_fold(*data))
    finish = jax.jit(lambda p: method.finish(client, LocalResult(p, {}, None, None, None)))
    return finish(params)


def gradients(tiny_model, params, x, labels):
    """One gradient of cross-entropy a sample."""

    def loss(p, x, y):
        return -jax.nn.log_softmax(tiny_model.apply(p, {}, x[None])[0].logits)[0, y]

    return jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(params, x, labels)


@pytest.mark.parametrize("floats", [2**18, 3 * 59])
def test_the_fisher_information_is_a_mean_over_samples(
    tiny_model, make_client, make_setup, make_params, data, floats, monkeypatch
):
    monkeypatch.setattr(sys.modules["fedjax_skew.methods.fedcurv"], "_FLOATS", floats)
    params = make_params(5)
    method = fedcurv(fisher_samples=0)
    found = upload(method, make_client, make_setup, data, params).kept.square
    expected = gradients(tiny_model, params, *data)
    jax.tree.map(
        lambda a, g: np.testing.assert_allclose(a, (g**2).mean(0), rtol=1e-4), found, expected
    )


def test_the_batch_form_squares_mean_gradients(
    tiny_model, make_client, make_setup, make_params, data
):
    params = make_params(5)
    method = fedcurv(fisher="batch", fisher_samples=11)
    found = upload(method, make_client, make_setup, data, params).kept.square
    expected = jax.tree.map(
        lambda g: (g[:8].mean(0) ** 2 + g[8:].mean(0) ** 2) / 2,
        gradients(tiny_model, params, *data),
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, expected)


def test_the_term_is_the_sum_of_the_other_clients_quadratic_forms(
    make_client, make_setup, make_view, make_round, make_params, data
):
    method = fedcurv(lam=0.3, fisher_samples=8)
    models = [make_params(seed) for seed in (5, 6, 7)]
    sent = [upload(method, make_client, make_setup, data, p) for p in models]
    summed = jax.tree.map(lambda *a: sum(a), *(u.summed for u in sent))
    server = method.absorb(make_round(state=method.init(make_setup()).server, summed=summed))
    view = make_view(make_client(kept=sent[1].kept, server=server))
    expected = 0.0
    for j in (0, 2):
        apart = jax.tree.map(jnp.square, trees.subtract(view.params, models[j]))
        expected += 0.3 * trees.dot(sent[j].kept.square, apart)
    np.testing.assert_allclose(method.term(view), expected, rtol=1e-3)


def test_the_server_holds_the_sum_of_the_clients_latest_parts(simulate):
    done = simulate("fedcurv", participation=0.5, rounds=3)
    server, kept = done.state.server, done.state.kept.method
    jax.tree.map(
        lambda s, k: np.testing.assert_allclose(s, k.sum(1), rtol=1e-4, atol=1e-6), server, kept
    )
    assert float(trees.norm(server.square)) > 0


def test_the_first_round_is_fedavg(make_client, make_setup, make_view):
    method = fedcurv()
    state = method.init(make_setup())
    assert float(method.term(make_view(make_client(kept=state.kept, server=state.server)))) == 0.0
