"""FedNova: FedAvg for equal steps, no bias for unequal ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_skew import trees
from fedjax_skew.methods.base import LocalResult, Method
from fedjax_skew.methods.composition import compose
from fedjax_skew.methods.fednova import fednova
from fedjax_skew.methods.momentum import effective_steps
from fedjax_skew.simulation.state import initial_state

SLOPE = jnp.array([3.0, -1.0, 2.0, -4.0, 0.5, 1.0])


def counted(steps, momentum):
    """The length of a round by counting, as the published optimiser does."""
    counter = total = 0.0
    for _ in range(steps):
        counter = momentum * counter + 1
        total += counter
    return total


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 7, 300])
def test_closed_form_of_the_length(steps, momentum):
    found = effective_steps(jnp.int32(steps), momentum)
    np.testing.assert_allclose(found, counted(steps, momentum), rtol=1e-5)


def test_unequal_steps_leave_no_bias(simulate):
    """On linear losses the update is the weighted mean of the true gradients, times one length."""
    linear = Method(
        "linear",
        loss=lambda context: (
            SLOPE[context.client.id] * sum(jnp.sum(p) for p in jax.tree.leaves(context.params))
        ),
    )
    done = simulate(compose([linear, fednova()]), rounds=1, momentum=0.9)
    before_training = initial_state(done.problem).params
    sizes = np.diff(done.problem.data.offsets[0])
    p = sizes / sizes.sum()
    lengths = [counted(-(-n // 8), 0.9) for n in sizes]
    assert len(set(lengths)) > 2
    expected = -0.1 * (p * lengths).sum() * (p * np.asarray(SLOPE)).sum()
    moved = optax.tree.sub(done.state.params, before_training)
    jax.tree.map(lambda m: np.testing.assert_allclose(m, expected, rtol=1e-4), moved)


def one_round(method, make_client, make_round, make_params, steps, *, state=None, moved=None):
    """The server's result for two clients with 30 and 10 samples."""
    x, samples = make_params(), jnp.array([30.0, 10.0])
    clients = [
        make_client(num_steps=jnp.int32(k), num_samples=n)
        for k, n in zip(steps, samples, strict=True)
    ]
    models = moved or [make_params(11), make_params(12)]
    results = [LocalResult(y, {}, x, None, None) for y in models]
    uploads = [method.make_upload(c, r) for c, r in zip(clients, results, strict=True)]
    weights = jnp.stack([method.weight(c, r) for c, r in zip(clients, results, strict=True)])
    weights = weights / weights.sum()
    mean = trees.weighted_mean(weights, trees.stack([optax.tree.sub(y, x) for y in models]))
    return mean, method.server(
        make_round(
            params=x,
            weights=weights,
            num_steps=jnp.array(steps),
            mean_delta=mean,
            stacked=trees.stack([u.stacked for u in uploads]),
            summed=optax.tree.add(uploads[0].summed, uploads[1].summed),
            state=state,
        )
    )


@pytest.mark.parametrize("uniform_weights", [False, True])
def test_equal_steps_give_fedavg(make_client, make_round, make_params, uniform_weights):
    method = fednova(uniform_weights=uniform_weights)
    mean, result = one_round(method, make_client, make_round, make_params, (4, 4))
    jax.tree.map(
        lambda a, x, d: np.testing.assert_allclose(a, x + d, atol=1e-6),
        result.params,
        make_params(),
        mean,
    )


def test_global_momentum_carries_on(make_client, make_round, make_params):
    """Twice the same update with factor 0.5: the second is 1.5 times as long."""
    method = fednova(global_momentum=0.5)
    args = method, make_client, make_round, make_params, (4, 2)
    _, first = one_round(*args, state=optax.tree.zeros_like(make_params()))
    _, second = one_round(*args, state=first.state)
    once, twice = (optax.tree.sub(r.params, make_params()) for r in (first, second))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(1.5 * a, b, atol=1e-5), once, twice)


def test_proximal_steps_are_discounted(make_client, make_params):
    method = fednova(mu=2.0)
    client = make_client(num_steps=jnp.int32(3), lr=jnp.float32(0.1))
    result = LocalResult(make_params(1), {}, make_params(), None, None)
    length = method.make_upload(client, result).stacked["length"]
    np.testing.assert_allclose(length, 1 + 0.8 + 0.8**2, rtol=1e-5)


def test_proximal_term_and_momentum_together_are_refused(make_init_context, info):
    context = dataclasses.replace(make_init_context(), info=dataclasses.replace(info, momentum=0.9))
    with pytest.raises(ValueError, match=r"hparams\.fednova\.mu=0\.1 .*momentum"):
        fednova(mu=0.1).init(context)
