"""FedBABU: the head never moves, until a client fine-tunes."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import uniform
from fedjax_skew.methods.fedbabu import fedbabu
from fedjax_skew.methods.fine_tuning import fine_tune


def test_the_head_is_bit_identical_after_training_with_decay_and_momentum(simulate):
    options = dict(model="mlp", momentum=0.9, weight_decay=0.1)
    short = simulate("fedbabu", rounds=1, **options)
    long = simulate("fedbabu", rounds=3, **options)
    jax.tree.map(
        np.testing.assert_array_equal, short.state.params["head"], long.state.params["head"]
    )
    body = [done.state.params["backbone"]["dense0"]["kernel"] for done in (short, long)]
    assert float(jnp.abs(body[0] - body[1]).max()) > 1e-4


def test_clients_have_equal_weights():
    assert fedbabu().weight is uniform


def test_fine_tuning_is_sgd_over_the_clients_data(make_client, make_batches, make_params):
    batches = make_batches(2)

    def fold(fn, carry, key):
        for batch in batches:
            carry = fn(carry, batch)
        return carry

    client = make_client(fold=fold)
    params, stats = fine_tune(client, client.params, {}, epochs=2, lr=0.1)

    def loss(params, batch):
        outputs, _ = client.model.apply(params, {}, batch.x)
        return cross_entropy(outputs.logits, batch.labels).mean()

    expected = make_params()
    for batch in (*batches, *batches):
        gradient = jax.grad(loss)(expected, batch)
        expected = jax.tree.map(lambda p, g: p - 0.1 * g, expected, gradient)
    assert stats == {}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), params, expected)


def test_fine_tuning_leaves_masked_parameters_alone(make_client, make_batches):
    client = make_client(fold=lambda fn, carry, key: fn(carry, make_batches()[0]))
    mask = {"head": {"kernel": True, "bias": True}, "hidden": {"kernel": False, "bias": False}}
    options = dict(epochs=1, lr=0.1, momentum=0.9, weight_decay=0.1, mask=mask)
    params, _ = fine_tune(client, client.params, {}, **options)
    jax.tree.map(np.testing.assert_array_equal, params["hidden"], client.params["hidden"])
    assert float(jnp.abs(params["head"]["kernel"] - client.params["head"]["kernel"]).max())
