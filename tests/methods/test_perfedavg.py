"""Per-FedAvg: gradients after an adaptation, and a client's own model."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import Method
from fedjax_skew.methods.composition import compose
from fedjax_skew.methods.perfedavg import perfedavg


def quadratic(curvature):
    return Method(
        "quadratic",
        loss=lambda context: 0.5 * curvature * optax.tree.vdot(context.params, context.params),
    )


@pytest.mark.parametrize("variant, power", [("fo", 1), ("hf", 2)])
def test_step_on_a_quadratic_by_hand(variant, power, take_step, make_params):
    """The gradient is a (1 - alpha a) w, and once more times I - alpha H without approximation."""
    method = compose([quadratic(2.0), perfedavg(alpha=0.1, variant=variant, delta=0.01)])
    found = take_step(method).params
    factor = 1 - 0.1 * 2 * (1 - 0.1 * 2) ** power
    jax.tree.map(
        lambda a, w: np.testing.assert_allclose(a, factor * w, rtol=2e-4, atol=1e-6),
        found,
        make_params(),
    )


def test_adapts_on_one_batch_and_descends_on_the_next(take_step, make_batches, make_params):
    first, second = make_batches(2)
    adapted = take_step(Method("fedavg"), batches=(first,)).params  # lr is 0.1
    there = take_step(Method("fedavg"), params=adapted, batches=(second,)).params
    found = take_step(perfedavg(alpha=0.1), batches=(first, second)).params
    expected = optax.tree.add(make_params(), optax.tree.sub(there, adapted))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)


def test_without_adaptation_it_is_sgd_on_the_second_batch(take_step, make_batches):
    first, second = make_batches(2)
    found = take_step(perfedavg(alpha=0.0), batches=(first, second)).params
    plain = take_step(Method("fedavg"), batches=(second,)).params
    jax.tree.map(np.testing.assert_array_equal, found, plain)


def test_own_model_is_one_step_on_all_of_the_clients_data(make_client, make_batches, tiny_model):
    batches = make_batches(3)
    batches = (*batches[:2], batches[2]._replace(where=jnp.arange(8) < 5))

    def fold(fn, carry, key=None):
        for batch in batches:
            carry = fn(carry, batch)
        return carry

    client = make_client(fold=fold, num_samples=jnp.float32(21))
    params, _ = perfedavg(alpha=0.3).personal(client)
    x = jnp.concatenate([b.x for b in batches])[:21]
    labels = jnp.concatenate([b.labels for b in batches])[:21]

    def loss(p):
        return cross_entropy(tiny_model.apply(p, {}, x)[0].logits, labels).mean()

    expected = optax.tree.add_scale(client.params, -0.3, jax.grad(loss)(client.params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), params, expected)


def test_takes_as_many_batches_as_it_needs():
    assert perfedavg().num_batches == 2 and perfedavg(variant="hf").num_batches == 3
