"""FedLC-LT: statistics, neighbours, local terms, the server's steps, and the four switches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import losses, trees
from fedjax_skew.methods.base import Batch, Evaluation, Method
from fedjax_skew.methods.fedlc_lt import class_moments, fedlc_lt, neighborhood
from fedjax_skew.methods.fedlc_lt_server import queried_head
from fedjax_skew.models.functional import head

OFF = dict(l_local=False, l_global=False, class_importance=False, class_query=False)


@pytest.fixture
def table(make_init_context):
    """State in which clients 0, 1, 3 were seen; class 2 is known to client 0 alone."""
    rng = np.random.default_rng(0)
    counts = np.zeros((5, 4), np.float32)
    counts[0], counts[1], counts[3] = [12, 8, 2, 0], [5, 5, 0, 9], [1, 0, 0, 3]
    held = (counts > 0)[..., None]
    mean = jnp.asarray(rng.normal(size=(5, 4, 4)) * held, jnp.float32)
    var = jnp.asarray(rng.random((5, 4, 4)) * held, jnp.float32)
    state = fedlc_lt().init(make_init_context()).server
    return {**state, "mean": mean, "var": var, "counts": jnp.asarray(counts)}


@pytest.fixture
def auxiliary(make_round, make_params, make_init_context):
    """A round with two clients whose models and labelled samples are at the server."""
    labels = jnp.asarray(np.arange(60) % 4)
    x = np.random.default_rng(0).normal(size=(60, 6)) + 2 * np.eye(4, 6)[labels]
    clients = [optax.tree.scale(2.0, make_params(s)) for s in (7, 8)]

    def make(method, **changes):
        return make_round(
            mean_delta=optax.tree.scale(0.1, make_params(5)),
            client_params=trees.stack(clients),
            client_stats={},
            labelled=(jnp.asarray(x, jnp.float32), labels),
            state=method.init(make_init_context()).server if method.init else None,
            **changes,
        )

    return make


def test_without_any_switch_it_is_fedavg():
    assert fedlc_lt(**OFF) == Method("fedlc_lt")


def test_each_switch_brings_its_own_part():
    def parts(**on):
        method = fedlc_lt(**{**OFF, **on})
        fields = (
            "init",
            "loss",
            "regularizer",
            "make_upload",
            "update_server_state",
            "server",
            "eval_model",
        )
        return (
            {f for f in fields if getattr(method, f)},
            method.needs_labelled_data,
            method.needs_client_models,
        )

    assert parts(l_local=True) == (
        {"init", "regularizer", "make_upload", "update_server_state"},
        False,
        False,
    )
    assert parts(class_importance=True) == (
        {"init", "loss", "make_upload", "update_server_state"},
        False,
        False,
    )
    assert parts(l_global=True) == ({"init", "server"}, True, True)
    assert parts(class_query=True) == ({"init", "server", "eval_model"}, True, False)


def test_uploaded_moments_are_those_of_each_class(make_client):
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(21, 6)).astype(np.float32), rng.integers(0, 3, 21)

    def fold(fn, carry):
        for at in range(0, 21, 8):
            rows = np.minimum(np.arange(at, at + 8), 20)
            where = jnp.asarray(np.arange(at, at + 8) < 21)
            carry = fn(carry, Batch(jnp.asarray(x[rows]), jnp.asarray(labels[rows]), where))
        return carry

    client = make_client(fold=fold)
    mean, var = class_moments(client, client.params, {})
    logits = np.asarray(client.model.apply(client.params, {}, x)[0].logits, np.float64)
    for c in range(3):
        np.testing.assert_allclose(mean[c], logits[labels == c].mean(0), atol=1e-5)
        np.testing.assert_allclose(var[c], logits[labels == c].var(0), atol=1e-5)
    assert float(jnp.abs(mean[3]).max()) == float(var[3].max()) == 0.0


@pytest.mark.parametrize("normalize", [True, False])
def test_neighbours_are_sought_among_the_clients_seen(table, normalize):
    made = neighborhood(table, 4, normalize=normalize)
    mean, counts = np.asarray(table["mean"]), np.asarray(table["counts"])
    others = mean[[1, 3]]
    expected = others.sum(0) / np.sqrt((others**2).sum(0) + 1e-12) / 2
    np.testing.assert_allclose(made["synthetic"][0], expected, atol=1e-4)
    np.testing.assert_array_equal(np.asarray(made["known"][0]) > 0, counts[[1, 3]].any(0))


def test_the_server_keeps_the_statistics_of_absent_and_skipped_clients(table, make_round):
    stacked = {"mean": jnp.ones((2, 4, 4)), "var": 2 * jnp.ones((2, 4, 4))}
    rnd = make_round(stacked=stacked, state=table, weights=jnp.array([1.0, 0.0]))
    new = jax.jit(lambda: fedlc_lt().update_server_state(rnd))()
    np.testing.assert_array_equal(new["mean"][3], jnp.ones((4, 4)))
    np.testing.assert_array_equal(new["counts"][3], rnd.class_counts[0])
    for k in (0, 1):  # Client 1 was in the round but not finite.
        np.testing.assert_array_equal(new["var"][k], table["var"][k])


def test_the_first_participation_is_plain_cross_entropy(table, make_client, make_context):
    method = fedlc_lt()
    state = {**table, **neighborhood(table, 2, normalize=True)}
    context = make_context(make_client(server=state, id=jnp.int32(2)))
    plain = context.mean(losses.cross_entropy(context.outputs.logits, context.batch.labels))
    assert float(method.loss(context)) == float(plain)
    assert float(method.regularizer(context)) == 0.0


def test_later_terms_are_the_papers_where_a_neighbour_knows_the_class(
    table, make_client, make_context
):
    method = fedlc_lt()
    state = {**table, **neighborhood(table, 2, normalize=True)}
    context = make_context(make_client(server=state, id=jnp.int32(0)))
    logits, labels = context.outputs.logits, context.batch.labels
    known = context.batch.where & (labels != 2)  # Class 2 is nobody else's.
    expected = losses.local_logit_calibration(logits, labels, state["synthetic"][0], where=known)
    np.testing.assert_allclose(method.regularizer(context), expected, rtol=1e-6)
    assert float(expected) > 0
    weights = losses.class_importance_weights(
        state["mean"][0], state["synthetic"][0], jnp.array([1, 1, 0, 0])
    )
    expected = context.mean(weights[labels] * losses.cross_entropy(logits, labels))
    np.testing.assert_allclose(method.loss(context), expected, rtol=1e-6)
    assert float(weights[2]) == 1.0


def test_distillation_brings_the_model_towards_the_ensemble(auxiliary):
    method = fedlc_lt(**{**OFF, "l_global": True}, steps=150, server_lr=1.0)
    rnd = auxiliary(method)
    result = jax.jit(lambda: method.server(rnd))()
    x, _ = rnd.labelled
    clients = jax.vmap(lambda p: rnd.model.apply(p, {}, x)[0].logits)(rnd.client_params)
    ensemble = losses.ensemble_logits(
        clients,
        jnp.array([0.75, 0.25]),
        result.state["r"][rnd.ids],
        jax.vmap(optax.tree.norm)(rnd.client_params),
    )

    def apart(params):
        own = rnd.model.apply(params, {}, x)[0].logits
        return float(losses.normalized_distillation(own, ensemble).mean())

    assert apart(result.params) < 0.3 * apart(optax.tree.add(rnd.params, rnd.mean_delta))
    learnt = np.asarray(result.state["r"])
    assert (learnt[np.asarray(rnd.ids)] != 0).all() and (learnt[[0, 2, 4]] == 0).all()


def evaluated_loss(method, rnd, result):
    """The cross-entropy of the evaluated model on the server's labelled data."""
    fields = {"params": result.params, "stats": {}, "state": result.state, "model": rnd.model}
    others = {"info": rnd.info, "key": rnd.key, "sum_clients": None, "final": jnp.bool_(True)}
    params, _ = method.eval_model(Evaluation(**fields, **others))
    x, labels = rnd.labelled
    return float(losses.cross_entropy(rnd.model.apply(params, {}, x)[0].logits, labels).mean())


def test_the_class_query_is_learnt_on_labels_and_leaves_the_trained_model_alone(auxiliary):
    method = fedlc_lt(**{**OFF, "class_query": True}, steps=100, calibration_lr=0.05)
    rnd = auxiliary(method)
    result = jax.jit(lambda: method.server(rnd))()
    average = optax.tree.add(rnd.params, rnd.mean_delta)
    jax.tree.map(np.testing.assert_array_equal, result.params, average)
    before = evaluated_loss(method, rnd, result._replace(state=rnd.state))
    assert evaluated_loss(method, rnd, result) < 0.95 * before


def test_the_class_query_persists_between_rounds(auxiliary):
    method = fedlc_lt(**{**OFF, "class_query": True}, steps=100, calibration_lr=0.02)
    rnd = auxiliary(method)
    first = jax.jit(lambda: method.server(rnd))()
    again = dataclasses.replace(rnd, state=first.state)
    second = jax.jit(lambda: method.server(again))()
    assert evaluated_loss(method, rnd, second) < evaluated_loss(method, rnd, first)


def test_the_class_query_helps_after_the_distillation(auxiliary):
    method = fedlc_lt(
        **{**OFF, "l_global": True, "class_query": True}, steps=100, calibration_lr=0.1
    )
    rnd = auxiliary(method)
    result = jax.jit(lambda: method.server(rnd))()
    unqueried = {**result.state, "a": jnp.ones(4), "b": jnp.zeros(4)}
    plain = evaluated_loss(method, rnd, result._replace(state=unqueried))
    assert evaluated_loss(method, rnd, result) < 0.97 * plain


@pytest.mark.parametrize("bias", [{}, {"bias": jnp.arange(4.0)}])
def test_a_queried_head_computes_the_query(make_params, bias):
    classifier = {"kernel": make_params()["head"]["kernel"], **bias}
    a, b = jnp.array([2.0, 1.0, 0.5, 4.5]), jnp.array([0.0, 1.0, -1.0, 3.0])
    features = jax.random.normal(jax.random.key(0), (7, 5))
    raw = head({"head": classifier}, features)
    found = head({"head": queried_head(classifier, a, b)}, features)
    np.testing.assert_allclose(found, losses.class_query(raw, a, b), atol=1e-5)


def test_a_skipped_client_does_not_teach(auxiliary):
    method = fedlc_lt(l_local=False, class_importance=False, steps=3)

    @jax.jit
    def server(factor):
        rnd = auxiliary(method, weights=jnp.array([1.0, 0.0]))
        clients = jax.tree.map(lambda a: a.at[1].multiply(factor), rnd.client_params)
        return method.server(dataclasses.replace(rnd, client_params=clients)).params

    moved = optax.tree.sub(server(1.0), server(2.0))
    assert float(optax.tree.norm(moved)) < 1e-3
