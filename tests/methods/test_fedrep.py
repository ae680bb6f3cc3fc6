"""FedRep: the head is trained first, then the body."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.fedbabu import fedbabu
from fedjax_skew.methods.fedrep import fedrep


def flags(method, client, step):
    mask = method.trainable(client, jnp.int32(step))
    return {name: bool(jnp.all(jnp.array(jax.tree.leaves(m)))) for name, m in mask.items()}


@pytest.mark.parametrize(("share", "steps", "head_steps"), [(0.5, 4, 2), (0.9, 2, 1), (1.0, 3, 3)])
def test_the_steps_are_divided_and_the_body_gets_one(make_client, share, steps, head_steps):
    client, method = make_client(num_steps=jnp.int32(steps)), fedrep(head_share=share)
    for step in range(steps):
        assert flags(method, client, step) == {
            "head": step < head_steps,
            "hidden": step >= head_steps,
        }


def test_each_phase_leaves_the_other_part_alone(take_step, make_client):
    client, method = make_client(num_steps=jnp.int32(2)), fedrep(head_share=0.5)
    options = {"momentum": 0.9, "weight_decay": 0.1}
    first = take_step(method, client, **options)
    jax.tree.map(np.testing.assert_array_equal, first.params["hidden"], client.params["hidden"])
    second = take_step(method, client, **options, after=first)
    jax.tree.map(np.testing.assert_array_equal, second.params["head"], first.params["head"])
    assert float(jnp.abs(first.params["head"]["kernel"] - client.params["head"]["kernel"]).max())
    moved = second.params["hidden"]["kernel"] - first.params["hidden"]["kernel"]
    assert float(jnp.abs(moved).max())


def test_without_a_head_phase_the_body_is_trained_as_by_fedbabu(take_step):
    a, b = take_step(fedrep(head_share=0.0)), take_step(fedbabu())
    jax.tree.map(np.testing.assert_array_equal, a.params, b.params)
