"""FedETF, FedNH and FedGELA: classifiers that nobody trains."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import LocalResult, batch_count
from fedjax_skew.methods.fedetf import fedetf
from fedjax_skew.methods.fedgela import fedgela, scales
from fedjax_skew.methods.fednh import fednh, orthonormal, unit

DIM = 6


@pytest.fixture
def model_of(tiny_model):
    """``model_of(method, seed)``: the method's model around the tiny one, and its variables."""

    def make(method, seed=0):
        model = method.model(tiny_model)
        return model, *model.init(jax.random.key(seed), jnp.zeros((1, DIM)))

    return make


def assert_close(a, b, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), a, b)


@pytest.mark.parametrize("name", ["fedetf", "fednh", "fedgela"])
def test_no_training_changes_the_head(simulate, name):
    """FedNH's server does, so it is compared within a round."""
    options = dict(momentum=0.9, weight_decay=0.1)
    hparams = {"fednh": {"rho": 1.0}, "fedgela": {"width": 4}}
    short = simulate(name, rounds=1, hparams=hparams, **options).state.params
    long = simulate(name, rounds=2, hparams=hparams, **options).state.params
    np.testing.assert_allclose(
        short["head"]["kernel"], long["head"]["kernel"], atol=0 if name != "fednh" else 1e-6
    )
    scale = "norm_head" if name == "fedgela" else "head_scale"
    moved = optax.tree.norm(optax.tree.sub(short[scale], long[scale]))
    assert float(moved) > 1e-5


@pytest.mark.parametrize("width", [0, 5])
def test_the_frame_has_unit_columns_at_equal_angles(model_of, width):
    _, params, _ = model_of(fedetf(width=width))
    frame = np.asarray(params["head"]["kernel"], np.float64)
    assert frame.shape == (width or 4, 4)
    expected = np.where(np.eye(4) > 0, 1, -1 / 3)
    np.testing.assert_allclose(frame.T @ frame, expected, atol=1e-6)


def test_a_frame_needs_as_many_features_as_classes(model_of):
    with pytest.raises(ValueError, match=r"hparams\.fedetf\.width=3 must be at least .* 4"):
        model_of(fedetf(width=3))


def test_the_length_of_features_does_not_matter(model_of):
    model, params, stats = model_of(fedetf())
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, DIM)), jnp.float32)
    projection = optax.tree.scale(3.0, params["head_projection"])
    longer = {**params, "head_projection": projection}
    assert_close(model.apply(params, stats, x)[0].logits, model.apply(longer, stats, x)[0].logits)
    features, _ = model.features(longer, stats, x)
    np.testing.assert_allclose(features, 3 * model.features(params, stats, x)[0], rtol=1e-5)


def test_uniform_counts_give_the_cross_entropy(make_client, make_context):
    context = make_context(make_client(class_counts=jnp.full(4, 7.0)))
    expected = context.mean(cross_entropy(context.outputs.logits, context.batch.labels))
    for form in ("code", "paper"):
        np.testing.assert_allclose(fedetf(form=form).loss(context), expected, rtol=1e-6)


def test_a_vacant_class_counts_as_one_or_drops_out(make_context):
    context = make_context()  # class 3 is vacant
    lowered = context.outputs._replace(logits=context.outputs.logits.at[:, 3].add(-9.0))
    lower = dataclasses.replace(context, outputs=lowered)
    assert float(fedetf().loss(lower)) < float(fedetf().loss(context))
    paper = fedetf(form="paper").loss
    np.testing.assert_allclose(paper(lower), paper(context), rtol=1e-6)


def test_prototypes_follow_the_evidence_of_clients_that_hold_the_class(make_round, model_of):
    _, params, _ = model_of(fednh())
    evidence = unit(jnp.asarray(np.random.default_rng(3).normal(size=(4, 5)), jnp.float32))
    counts = jnp.array([3.0, 0.0, 1.0, 2.0])
    summed = {"sum": evidence * counts[:, None], "count": counts}
    zero = optax.tree.zeros_like(params)
    rnd = make_round(params=params, mean_delta=zero, summed=summed)
    old = params["head"]["kernel"]
    new = fednh(rho=0.0).server(rnd).params["head"]["kernel"]
    np.testing.assert_array_equal(new[:, 1], old[:, 1])
    np.testing.assert_allclose(new.T[counts > 0], evidence[counts > 0], atol=1e-6)
    slow = fednh(rho=0.9).server(rnd).params["head"]["kernel"]
    np.testing.assert_allclose(jnp.linalg.norm(slow, axis=0), 1.0, rtol=1e-5)
    assert float(jnp.sum(slow[:, 0] * old[:, 0])) > float(jnp.sum(new[:, 0] * old[:, 0]))


def test_a_client_sends_the_direction_of_its_mean_feature(make_client, make_batches, model_of):
    method = fednh()
    model, params, stats = model_of(method)
    (batch,) = make_batches()
    client = make_client(
        model=model, params=params, fold=lambda fn, init, key=None: fn(init, batch)
    )
    sent = method.make_upload(client, LocalResult(params, stats, params, None, None)).summed
    features = np.asarray(model.features(params, stats, batch.x)[0], np.float64)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = np.asarray(batch.labels)
    for c in range(4):
        rows = features[labels == c]
        mean = rows.mean(0) if len(rows) else np.zeros(5)
        expected = len(rows) * mean / max(np.linalg.norm(mean), 1e-12)
        np.testing.assert_allclose(sent["sum"][c], expected, atol=1e-5)
        assert sent["count"][c] == len(rows)


def test_prototypes_start_orthonormal_or_at_least_normalised():
    made = orthonormal(jax.random.key(0), 5, 3)
    np.testing.assert_allclose(made.T @ made, np.eye(3), atol=1e-6)
    crowded = orthonormal(jax.random.key(0), 2, 3)
    np.testing.assert_allclose(jnp.linalg.norm(crowded, axis=0), 1.0, rtol=1e-6)


def test_a_kept_model_is_evaluated_with_the_current_prototypes(make_client, model_of):
    _, own, _ = model_of(fednh(), 1)
    _, new, _ = model_of(fednh(), 2)
    client = make_client(params=new, state={"params": own, "stats": {}})
    params, _ = fednh(keep_models=True).personal(client)
    np.testing.assert_array_equal(params["head"]["kernel"], new["head"]["kernel"])
    np.testing.assert_array_equal(params["hidden"]["kernel"], own["hidden"]["kernel"])


def test_equal_counts_make_local_and_global_logits_equal(make_client):
    client = make_client(class_counts=jnp.full(4, 5.0), num_samples=jnp.float32(20))
    np.testing.assert_allclose(scales(client), 1.0)


def test_a_vacant_class_has_logit_zero_and_no_gradient(make_client, make_context, model_of):
    method = fedgela()
    model, params, stats = model_of(method)
    client = make_client(model=model, params=params, stats=stats)
    context = make_context(client, params=params)

    def loss(logits):
        outputs = context.outputs._replace(logits=logits)
        return method.loss(dataclasses.replace(context, outputs=outputs))

    gradient = jax.grad(loss)(context.outputs.logits)
    np.testing.assert_array_equal(gradient[:, 3], 0.0)
    assert float(jnp.abs(gradient[:, 0]).max()) > 0
    own, _ = method.personal(client)
    logits = model.apply(own, stats, context.batch.x)[0].logits
    np.testing.assert_array_equal(logits[:, 3], 0.0)
    assert method.weight is batch_count


def test_features_are_normalised_over_the_valid_rows(model_of):
    model, params, stats = model_of(fedgela())
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, DIM)), jnp.float32)
    outputs, new = model.apply(params, stats, x, train=True, where=jnp.arange(8) < 6)
    np.testing.assert_allclose(outputs.features[:6].mean(0), 0.0, atol=1e-5)
    assert float(jnp.abs(new["norm_head"]["mean"] - stats["norm_head"]["mean"]).max()) > 0
