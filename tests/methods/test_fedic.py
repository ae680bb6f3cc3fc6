"""FEDIC: a calibrated ensemble, distilled; state that outlives the round."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import trees
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.fedic import calibrated, fedic

STEPS = dict(finetune_steps=4, calibrate_steps=5, distill_steps=30)
SIZES = dict(labelled_batch_size=10, unlabelled_batch_size=16, server_lr=0.01)


@pytest.fixture
def rounds(make_init_context, make_round, make_params):
    method = fedic(**STEPS, **SIZES)
    rng = np.random.default_rng(0)
    labels = jnp.asarray(np.arange(40) % 4)
    x = jnp.asarray(rng.normal(size=(40, 6)) + 2 * np.eye(4, 6)[labels], jnp.float32)
    rnd = make_round(
        mean_delta=optax.tree.scale(0.1, make_params(5)),
        client_params=trees.stack([make_params(7), make_params(8)]),
        client_stats={},
        labelled=(x, labels),
        unlabelled=jnp.asarray(rng.normal(size=(50, 6)), jnp.float32),
        state=method.init(make_init_context()).server,
    )
    step = jax.jit(lambda state: method.server(dataclasses.replace(rnd, state=state)))
    return rnd, step


def test_the_student_learns_from_both_sets_and_the_state_persists(rounds):
    rnd, step = rounds
    first = step(rnd.state)
    second = step(first.state)
    x, labels = rnd.labelled

    def loss(params):
        return float(cross_entropy(rnd.model.apply(params, {}, x)[0].logits, labels).mean())

    assert loss(first.params) < 0.9 * loss(optax.tree.add(rnd.params, rnd.mean_delta))

    def steps(state, name):
        return [int(a) for a in jax.tree.leaves(state[name]) if a.dtype == jnp.int32]

    assert set(steps(second.state, "student_opt")) == {60}
    assert set(steps(second.state, "copy_opt")) == {8}
    assert set(steps(second.state, "calibration_opt")) == {10}
    moved = optax.tree.sub(second.state["calibration"], first.state["calibration"])
    assert float(optax.tree.norm(moved)) > 0


def test_the_calibrated_teacher_by_hand():
    net = {
        "u": jnp.array([1.0, 0.0]),
        "u_bias": jnp.float32(0),
        "scale": jnp.array([2.0, 1.0]),
        "bias": jnp.array([0.0, 1.0]),
        "gate": jnp.array([1.0]),
        "gate_bias": jnp.float32(0),
    }
    clients = jnp.array([[[0.0, 2.0], [0.0, 4.0], [9.0, 9.0]]])
    # The third client does not take part, the others weigh the same; the gate is at one half.
    found = calibrated(
        net, clients, jnp.zeros((1, 1)), jnp.array([[6.0, 6.0]]), jnp.array([1.0, 1.0, 0.0])
    )
    np.testing.assert_allclose(found, [[3.0, 5.0]], rtol=1e-6)


def test_it_needs_both_kinds_of_server_data():
    assert fedic().needs_labelled_data and fedic().needs_unlabelled_data
