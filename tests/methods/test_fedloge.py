"""FedLoGe: a fixed sparse frame, a generic and an own head."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.methods.base import Evaluation
from fedjax_skew.methods.fedloge import fedloge, merge, realigned, sparse_frame


@pytest.fixture(scope="module")
def frame():
    return sparse_frame(jax.random.key(0), 24, 4, sparsity=0.5, length=0.1, steps=3000)


def test_the_frame_is_sparse_with_short_columns_far_apart(frame):
    frame = np.asarray(frame, np.float64)
    start = sparse_frame(jax.random.key(0), 24, 4, sparsity=0.5, length=0.1, steps=1)
    zero = np.asarray(start) == 0
    assert zero.mean() == 0.5
    np.testing.assert_array_equal(frame[zero], 0.0)
    lengths = np.linalg.norm(frame, axis=0)
    assert (lengths < 0.4).all()
    cosines = (frame / lengths).T @ (frame / lengths)
    assert cosines[~np.eye(4, dtype=bool)].max() < 0


def test_each_loss_trains_its_own_part(make_client, make_context, make_params):
    """The network's gradient knows nothing of the head, and the head's nothing of the frame."""
    method = fedloge()
    shape = make_params()["head"]["kernel"].shape
    frame = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)

    def gradient(params, frame):
        client = make_client(server=frame)

        def loss(params):
            return method.loss(make_context(client, params=params))

        return jax.grad(loss)(params)

    params = make_params(3)
    base = gradient(params, frame)
    other = gradient({**params, "head": make_params(4)["head"]}, frame)
    jax.tree.map(np.testing.assert_array_equal, base["hidden"], other["hidden"])
    scaled = gradient(params, 2 * frame)
    jax.tree.map(np.testing.assert_array_equal, base["head"], scaled["head"])
    assert float(jnp.abs(base["hidden"]["kernel"] - scaled["hidden"]["kernel"]).max()) > 0


def test_the_own_head_is_trained_on_its_own_logits(make_client, make_context, make_params, info):
    method, own = fedloge(), make_params(6)["head"]
    client = make_client(state=own, info=dataclasses.replace(info, momentum=0.5))
    context = make_context(client, scratch=method.scratch(client))
    once = method.update_scratch(context)
    twice = method.update_scratch(dataclasses.replace(context, scratch=once))
    first = optax.tree.sub(own, once["head"])
    np.testing.assert_allclose(first["bias"], 0.1 * once["momentum"]["bias"], rtol=1e-4, atol=1e-7)
    second = optax.tree.sub(once["head"], twice["head"])
    assert float(optax.tree.norm(second)) > 1.2 * float(optax.tree.norm(first))


def test_realigned_columns_have_one_length_and_the_frame_can_be_evaluated(make_params):
    generic = make_params()["head"]
    lengths = jnp.linalg.norm(realigned(generic)["kernel"], axis=0)
    np.testing.assert_allclose(lengths, 1.7, rtol=1e-5)
    evaluation = Evaluation(None, None, make_params(), {}, jnp.ones((5, 4)), *[None] * 3)
    made = fedloge(evaluate="frame").eval_model(evaluation)[0]["head"]
    np.testing.assert_array_equal(made["kernel"], 1.0)
    np.testing.assert_array_equal(made["bias"], 0.0)


def test_own_models_never_predict_a_class_that_is_not_held(make_params):
    generic, own = make_params(1)["head"], make_params(2)["head"]
    held = jnp.array([True, True, False, True])
    merged = merge(generic, own, held)
    column = generic["kernel"][:, 0] * jnp.linalg.norm(own["kernel"][:, 0]) + own["kernel"][:, 0]
    np.testing.assert_allclose(merged["kernel"][:, 0], column, rtol=1e-5)
    assert merged["bias"][2] < -1e8


def test_the_frame_survives_training(simulate):
    options = dict(model="mlp", hparams={"fedloge": {"frame_steps": 2}}, weight_decay=0.1)
    frames = [simulate("fedloge", rounds=n, **options).state.server for n in (1, 2)]
    np.testing.assert_array_equal(*frames)


def test_too_few_features_are_refused(simulate):
    with pytest.raises(ValueError, match="features=2 must be at least the number of classes, 3"):
        sparse_frame(jax.random.key(0), 2, 3, sparsity=0.5, length=0.1, steps=1)
