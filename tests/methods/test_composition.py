"""Composition of methods: parts that do not collide merge, others are refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods import REGISTRY, build
from fedjax_skew.methods.base import Method, MethodState, Upload
from fedjax_skew.methods.composition import compose


def decay_term(strength):
    return Method(
        "decay",
        regularizer=lambda context: strength * optax.tree.vdot(context.params, context.params),
    )


def counter():
    """Counts participations on the client and on the server."""
    return Method(
        "counter",
        init=lambda context: MethodState(jnp.int32(0), jnp.int32(0)),
        make_upload=lambda client, result: Upload(client.state + 1, client.id, jnp.float32(1)),
        update_server_state=lambda rnd: rnd.state + rnd.summed.astype(jnp.int32),
    )


def test_a_single_method_is_returned_as_it_is():
    method = decay_term(0.1)
    assert compose([method]) is method


def test_states_are_kept_apart(simulate):
    done = simulate(compose([counter(), decay_term(0.1)]), rounds=3, participation=0.5)
    assert int(done.state.server["counter"][0]) == 9
    assert int(done.state.clients.method["counter"].sum()) == 9


def test_a_term_acts_the_same_alone_and_composed(simulate):
    alone = simulate(decay_term(0.1))
    both = simulate(compose([decay_term(0.1), counter()]))
    plain = simulate("fedavg")
    jax.tree.map(np.testing.assert_array_equal, alone.state.params, both.state.params)
    assert float(optax.tree.norm(alone.state.params)) < float(optax.tree.norm(plain.state.params))


def test_a_collision_names_both_methods_and_the_part():
    a = Method("a", loss=lambda context: 0.0)
    b = Method("b", loss=lambda context: 0.0)
    with pytest.raises(ValueError, match=r"a and b both define the loss"):
        compose([a, b])


def test_a_method_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        build("fedavg+fedavg")


def test_an_unknown_method_gets_a_suggestion():
    with pytest.raises(ValueError, match="Did you mean 'fedavg'"):
        build("fedavgg")


def test_an_unknown_hyper_parameter_names_the_method():
    with pytest.raises(ValueError, match=r"hparams\.fedavg='uniform' is unknown"):
        build("fedavg", {"fedavg": {"uniform": True}})


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("fedlc+scaffold", ("loss", "correct_gradient", "update_server_state")),
        ("fedlc+fedprox", ("loss", "regularizer")),
        ("fedvls+fedsam", ("loss", "regularizer", "step")),
        ("fedvls+fedexp", ("loss", "regularizer", "server")),
        ("fedrs+fedadam", ("loss", "server")),
        ("fedlf+moon", ("loss", "regularizer", "scratch", "make_upload")),
    ],
)
def test_named_pairs_have_the_parts_of_both(name, parts):
    assert all(getattr(build(name), part) is not None for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "first", "second"),
    [
        ("fedvls+fedsam", "fedvls", "fedsam"),
        ("fedrs+fedadam", "fedrs", "fedadam"),
        ("fedlc+scaffold", "fedlc", "scaffold"),
    ],
)
def test_a_pair_differs_from_each_of_its_methods(simulate, pair, first, second):
    both, a, b = (simulate(name, rounds=2) for name in (pair, first, second))

    def apart(one, other):
        heads = [done.state.params["head"]["kernel"] for done in (one, other)]
        return float(jnp.abs(heads[0] - heads[1]).max())

    assert np.isfinite(float(optax.tree.norm(both.state.params)))
    assert apart(both, a) > 1e-4
    assert apart(both, b) > 1e-4


def test_every_pair_composes_or_is_refused_with_a_sentence_about_its_parts():
    built = {name: build(name) for name in REGISTRY}
    composed = 0
    for a, b in itertools.combinations(built, 2):
        try:
            compose([built[a], built[b]])
            composed += 1
        except ValueError as error:
            alone = "trains in phases" in str(error)
            assert (a in str(error) and b in str(error)) or alone, error
    assert composed > 500
