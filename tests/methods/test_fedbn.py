"""FedBN: normalisation layers never leave their client."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.engine.evaluate import batches, evaluate_clients
from fedjax_skew.engine.round import run_rounds
from fedjax_skew.methods.base import LocalResult
from fedjax_skew.methods.fedbn import fedbn
from fedjax_skew.models.functional import from_module
from fedjax_skew.models.norm import Norm
from fedjax_skew.simulation.problem import build, initial_state


class Normalized(nn.Module):
    """The smallest network with batch normalisation."""

    @nn.compact
    def __call__(self, x, *, train, where=None):
        x = Norm(name="norm0")(x, train, where)
        return nn.Dense(3, name="head")(x), x


@pytest.fixture(scope="module")
def problem(tiny_config, blobs):
    made = build(tiny_config(method="fedbn", participation=0.5), dataset=blobs)
    model = from_module(Normalized(), lambda x: x)
    phase = made.phases[0]
    local = dataclasses.replace(phase.spec.local, model=model)
    phase = dataclasses.replace(
        phase, model=model, spec=dataclasses.replace(phase.spec, local=local)
    )
    return dataclasses.replace(made, phases=(phase,))


@pytest.fixture(scope="module")
def run(problem):
    """One round of 3 of the 6 clients, with changed data."""
    fn = jax.jit(functools.partial(run_rounds, problem.phases[0].spec, 1))

    def run(data):
        data = jax.tree.map(jnp.asarray, data)
        return fn(initial_state(problem), data, jnp.int32(1))[0]

    return run


def rows_equal(a, b):
    """``[K]`` whether two kept states agree in everything, client by client."""
    same = [
        (np.asarray(x[0]) == np.asarray(y[0])).reshape(x.shape[1], -1).all(-1)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        if x.size
    ]
    return np.logical_and.reduce(same)


def test_statistics_never_move_between_clients(problem, run):
    state = run(problem.data)
    took_part = ~rows_equal(state.clients.method, initial_state(problem).clients.method)
    assert took_part.sum() == 3
    other = int(np.flatnonzero(took_part)[0])
    first, last = problem.data.offsets[0, other : other + 2]
    x = problem.data.x.copy()
    x[problem.data.order[0, first:last]] *= 50
    changed = run(problem.data._replace(x=x))
    same = rows_equal(state.clients.method, changed.clients.method)
    np.testing.assert_array_equal(np.flatnonzero(~same), [other])


def test_a_clients_own_model_has_its_own_statistics(problem, run):
    state = run(problem.data)
    work, data = problem.phases[0].spec, jax.tree.map(jnp.asarray, problem.data)
    test = batches(problem.dataset.x_test, problem.dataset.y_test, 45, 1)
    scores = evaluate_clients(work, state, data, test, jnp.arange(6))
    assert scores.confusion.shape == (1, 6, 3, 3)
    kept = jax.tree.map(lambda a: a[0], state.clients.method)
    norm = jax.tree.structure(state.params["norm0"])
    for k in (0, 5):
        params = {
            "head": jax.tree.map(lambda a: a[0], state.params["head"]),
            "norm0": jax.tree.unflatten(norm, [a[k] for a in kept["norm"]]),
        }
        stats = jax.tree.map(lambda a, k=k: a[k], kept["stats"])
        logits = work.local.model.apply(params, stats, problem.dataset.x_test)[0].logits
        right = (np.asarray(logits).argmax(-1) == problem.dataset.y_test).sum()
        assert np.trace(scores.confusion[0, k]) == right


def test_without_normalisation_it_is_fedavg(make_client, make_init_context, make_params):
    method = fedbn()
    client = make_client(state=method.init(make_init_context()).client, params=make_params(9))
    params, stats = method.start(client)
    jax.tree.map(np.testing.assert_array_equal, params, client.params)
    kept = method.make_upload(client, LocalResult(make_params(1), {}, params, None, None)).state
    assert stats == {} and all(leaf.size == 0 for leaf in jax.tree.leaves(kept))
    assert method.server is None and method.weight is None
