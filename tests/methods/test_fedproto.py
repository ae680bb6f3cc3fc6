"""FedProto: clients share prototypes, not models."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.base import LocalResult
from fedjax_skew.methods.fedproto import fedproto, nearest


def with_prototypes(make_client, prototypes, known):
    known = jnp.asarray(known, bool)
    return make_client(server={"prototypes": jnp.asarray(prototypes, jnp.float32), "known": known})


def test_the_distance_counts_known_classes_only(make_client, make_context):
    prototypes = np.random.default_rng(0).normal(size=(4, 5))
    context = make_context(with_prototypes(make_client, prototypes, [1, 0, 0, 0]))
    features, batch = np.asarray(context.outputs.features, np.float64), context.batch
    rows = np.asarray((batch.labels == 0) & batch.where)
    square = ((features[rows] - prototypes[0]) ** 2).sum() / 7
    np.testing.assert_allclose(fedproto().regularizer(context), square / 5, rtol=1e-5)
    np.testing.assert_allclose(fedproto(form="paper").regularizer(context), square, rtol=1e-5)


def test_there_is_no_term_in_the_first_round(make_init_context, make_client, make_context):
    method = fedproto()
    server = method.init(make_init_context()).server
    assert float(method.regularizer(make_context(make_client(server=server)))) == 0


@pytest.mark.parametrize(("form", "share"), [("code", 0.5), ("paper", 0.75)])
def test_prototypes_are_means_over_the_holders(make_client, make_round, form, share):
    """Two clients with 12 and 4 samples of class 0; nobody sends class 3, which keeps its own."""
    method, total = fedproto(form=form), None
    for counts, value in (([12.0, 8.0, 2.0, 0.0], 1.0), ([4.0, 0.0, 0.0, 0.0], 5.0)):
        seen = jnp.asarray(counts)
        scratch = {"sum": value * seen[:, None] * jnp.ones((4, 5)), "count": seen}
        client = make_client(class_counts=seen)
        sent = method.make_upload(client, LocalResult(None, None, None, scratch, None)).summed
        total = sent if total is None else jax.tree.map(jnp.add, total, sent)
    old = {"prototypes": jnp.full((4, 5), 9.0), "known": jnp.array([False, False, False, True])}
    new = method.update_server_state(make_round(state=old, summed=total))
    np.testing.assert_allclose(new["prototypes"][0], share * 1 + (1 - share) * 5, rtol=1e-6)
    np.testing.assert_allclose(new["prototypes"][1], 1.0, rtol=1e-6)
    np.testing.assert_allclose(new["prototypes"][3], 9.0)
    np.testing.assert_array_equal(new["known"], True)


def test_class_means_are_those_of_the_last_epoch(make_context):
    method = fedproto()
    context = make_context()
    old = {"sum": jnp.full((4, 5), 100.0), "count": jnp.full(4, 100.0)}
    first = dataclasses.replace(context, scratch=old)
    later = dataclasses.replace(first, epoch_start=jnp.bool_(False))
    np.testing.assert_array_equal(method.update_scratch(first)["count"], [3, 3, 1, 0])
    np.testing.assert_array_equal(method.update_scratch(later)["count"], [103, 103, 101, 100])


def test_models_never_mix_and_the_global_one_stays(simulate):
    """Without prototypes clients train alone: what one has learnt does not depend on others."""
    alone = {"fedproto": {"lam": 0.0}}
    some = simulate("fedproto", hparams=alone, rounds=1, participation=0.5)
    whole = simulate("fedproto", hparams=alone, rounds=1)
    before = simulate("fedproto", hparams=alone, rounds=2, participation=0.5)
    jax.tree.map(np.testing.assert_array_equal, some.state.params, before.state.params)
    own = [np.asarray(d.state.clients.method["params"]["head"]["kernel"][0]) for d in (some, whole)]
    start = np.asarray(some.state.params["head"]["kernel"][0])
    trained = np.abs(own[0] - start).max((1, 2)) > 0
    assert 0 < trained.sum() < len(trained)
    np.testing.assert_allclose(own[0][trained], own[1][trained], atol=1e-6)


def test_the_nearest_prototype_is_a_linear_head():
    rng = np.random.default_rng(1)
    prototypes, features = rng.normal(size=(4, 5)), rng.normal(size=(50, 5))
    allowed = np.array([True, True, False, True])
    made = nearest(jnp.asarray(prototypes, jnp.float32), jnp.asarray(allowed))
    guess = (features @ np.asarray(made["kernel"]) + np.asarray(made["bias"])).argmax(1)
    distance = ((features[:, None] - prototypes) ** 2).sum(-1)
    distance[:, ~allowed] = np.inf
    np.testing.assert_array_equal(guess, distance.argmin(1))


def test_prototypes_cannot_predict_through_a_head_without_bias(make_init_context):
    """The network would leave out the bias, and with it the prototypes' lengths."""
    context = make_init_context()
    head = {"kernel": context.params["head"]["kernel"]}
    context = dataclasses.replace(context, params={**context.params, "head": head})
    with pytest.raises(ValueError, match="predict='prototype' needs a head with bias"):
        fedproto(predict="prototype").init(context)
    assert fedproto().init(context).server is not None


def test_averaging_leaves_fedavg_with_the_term(simulate):
    options = dict(rounds=2, participation=0.5)
    off = {"fedproto": {"lam": 0.0, "average": True}}
    one, plain = simulate("fedproto", hparams=off, **options), simulate("fedavg", **options)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        one.state.params,
        plain.state.params,
    )
