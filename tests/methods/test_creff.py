"""CReFF: class gradients, matched features, a re-trained head."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import trees
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import Batch, Evaluation
from fedjax_skew.methods.creff import creff, head_gradient, match, mismatch

SMALL = dict(
    images_per_class=6,
    match_steps=30,
    classifier_epochs=20,
    classifier_batch_size=8,
    sample_size=4,
    repeats=2,
)


@pytest.fixture
def targets(make_params):
    """Gradients of four classes' true features at some head."""
    classifier = make_params()["head"]
    features = jax.random.normal(jax.random.key(1), (4, 30, 5)) + 2 * jnp.eye(4, 5)[:, None]
    gradients = jax.vmap(lambda f, c: head_gradient(classifier, f, c, jnp.ones(30, bool)))(
        features, jnp.arange(4)
    )
    return classifier, gradients


def test_a_class_gradient_is_taken_at_the_retrained_head(make_client, make_params):
    x = jax.random.normal(jax.random.key(2), (8, 6))

    def sample_class(key, c, size):
        assert size == 8
        return Batch(x, jnp.full(8, c), jnp.broadcast_to(c < 3, (8,)))

    retrained = make_params(5)["head"]
    client = make_client(server={"head": retrained}, sample_class=sample_class)
    gradients = creff(**SMALL).before_training(client)
    z = np.asarray(client.model.apply(client.params, {}, x)[0].features)
    logits = z @ np.asarray(retrained["kernel"]) + np.asarray(retrained["bias"])
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    p[:, 1] -= 1
    np.testing.assert_allclose(gradients["kernel"][1], z.T @ p / 8, atol=1e-6)
    np.testing.assert_allclose(gradients["bias"][1], p.mean(0), atol=1e-6)
    assert float(optax.tree.norm(trees.index(gradients, 3))) == 0.0


def test_features_match_gradients_better_after_matching(targets):
    classifier, gradients = targets
    known = jnp.array([True, True, True, False])
    features = jax.random.normal(jax.random.key(3), (4, 6, 5))
    made = jax.jit(lambda f: match(f, classifier, gradients, known, steps=50, lr=0.1))(features)
    before_training = float(mismatch(features, classifier, gradients, known))
    assert float(mismatch(made, classifier, gradients, known)) < 0.5 * before_training
    np.testing.assert_array_equal(made[3], features[3])
    assert (np.asarray(made[:3]) != np.asarray(features[:3])).all()


def test_matching_stays_finite_without_any_gradient(targets):
    classifier, gradients = targets
    features = jnp.zeros((4, 6, 5))
    made = match(
        features, classifier, optax.tree.zeros_like(gradients), jnp.ones(4, bool), steps=2, lr=0.1
    )
    assert np.isfinite(made).all()


def test_the_evaluated_head_is_trained_on_the_features(make_init_context, make_round, targets):
    method = creff(**SMALL, classifier_lr=0.5)
    state = method.init(make_init_context()).server
    _, gradients = targets
    summed = {"gradients": optax.tree.scale(2.0, gradients), "holders": jnp.array([2.0, 2, 2, 0])}
    rnd = make_round(summed=summed, state=state)
    new = jax.jit(lambda: method.update_server_state(rnd))()

    def loss(classifier):
        logits = new["features"] @ classifier["kernel"] + classifier["bias"]
        return float(cross_entropy(logits, jnp.tile(jnp.arange(4)[:, None], (1, 6))).mean())

    assert loss(new["head"]) < 0.8 * loss(state["head"])
    assert method.server is None  # The next model is FedAvg's, with FedAvg's head.
    params, _ = method.eval_model(
        Evaluation(rnd.info, rnd.model, rnd.params, {}, new, rnd.key, None, jnp.bool_(False))
    )
    assert params["head"] is new["head"] and params["hidden"] is rnd.params["hidden"]
