"""FedGen: a generator trained on heads, and what clients learn from it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import trees
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.fedgen import Generator, _sameness, fedgen
from fedjax_skew.models.functional import head

SMALL = dict(noise_dim=4, hidden=16, batch_size=16)


@pytest.fixture
def state(make_init_context):
    return fedgen(**SMALL).init(make_init_context()).server


def test_the_generator_learns_features_the_heads_recognise(make_round, make_params, state):
    method = fedgen(**SMALL, generator_steps=300, generator_lr=0.01, generator_weight_decay=0.0)
    heads = trees.stack([optax.tree.scale(3.0, make_params(s)["head"]) for s in (7, 8)])
    counts = jnp.array([[9.0, 5.0, 1.0, 1.0], [1.0, 9.0, 7.0, 1.0]])
    rnd = make_round(stacked={"head": heads, "counts": counts}, state=state)
    trained = jax.jit(lambda: method.update_server_state(rnd))()
    labels = jnp.tile(jnp.array([0, 1, 2]), 20)
    noise = jax.random.uniform(jax.random.key(9), (60, 4))

    def loss(state):
        variables = {"params": state["params"], "batch_stats": state["stats"]}
        features = Generator(16, 5, 4).apply(variables, noise, labels, False)
        logits = jax.vmap(lambda h: head({"head": h}, features))(heads)
        share = (counts / counts.sum(0))[:, labels]
        return float((share * cross_entropy(logits, jnp.tile(labels, (2, 1)))).sum(0).mean())

    assert loss(trained) < 0.5 * loss(state)
    np.testing.assert_array_equal(trained["available"], state["available"])


def test_a_skipped_client_changes_nothing(make_round, make_params, state):
    # The round hands over zeros in its place.
    one = trees.stack([make_params(7)["head"]])
    two = jax.tree.map(lambda a: jnp.concatenate([a, 0 * a]), one)
    counts = jnp.array([[9.0, 5.0, 2.0, 1.0]])
    method = fedgen(**SMALL, generator_steps=1)

    @jax.jit
    def update_server_state(heads, counts):
        rnd = make_round(stacked={"head": heads, "counts": counts}, state=state)
        return method.update_server_state(rnd)

    alone = update_server_state(one, counts)
    both = update_server_state(two, jnp.concatenate([counts, 0 * counts]))
    # Adam's step is as long where the gradient is 0 up to rounding; its moments show the gradient.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7),
        alone["opt_state"],
        both["opt_state"],
    )
    assert max(np.abs(m).max() for m in jax.tree.leaves(alone["opt_state"][1].mu)) > 1e-3
    nobody = update_server_state(optax.tree.scale(0.0, two), jnp.zeros((2, 4)))
    jax.tree.map(np.testing.assert_array_equal, nobody["params"], state["params"])


def test_terms_start_in_the_second_round_and_end_within_it(make_client, make_context, state):
    method = fedgen(**SMALL, term_steps=2)

    def regularizer(round_, step):
        client = make_client(server=state, round=jnp.int32(round_))
        return float(method.regularizer(make_context(client, step=jnp.int32(step))))

    assert regularizer(0, 0) == 0.0 and regularizer(1, 2) == 0.0
    assert regularizer(1, 1) > 0.0
    assert regularizer(30, 1) < 0.6 * regularizer(1, 1)


def test_generated_features_train_only_the_head(make_client, make_context, state):
    method = fedgen(**SMALL, beta=0.0)
    context = make_context(make_client(server=state, round=jnp.int32(1)))

    def regularizer(params):
        outputs, _ = context.client.model.apply(params, {}, context.batch.x)
        return method.regularizer(dataclasses.replace(context, params=params, outputs=outputs))

    gradient = jax.grad(regularizer)(context.params)
    assert float(optax.tree.norm(gradient["head"])) > 0
    # What is left of the other term, with the smallest weight, is all that reaches the encoder.
    assert float(optax.tree.norm(gradient["hidden"])) < 1e-4


def test_labels_are_counted_without_padding(make_context):
    seen = fedgen().update_scratch(make_context(scratch=jnp.ones(4)))
    np.testing.assert_array_equal(seen, [4, 4, 2, 1])


def test_sameness_by_hand():
    noise = jnp.array([[0.0, 0.0], [1.0, 1.0]])
    features = jnp.array([[0.0], [3.0]])
    # Two of four pairs differ: mean square 1 times mean difference 3.
    np.testing.assert_allclose(_sameness(noise, features), np.exp(-1.5), rtol=1e-6)
