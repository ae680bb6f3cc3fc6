"""FedBN: normalisation layers never leave their client."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew.methods.base import LocalResult
from fedjax_skew.methods.fedbn import fedbn
from fedjax_skew.models.norm import Norm
from fedjax_skew.simulation.programs import compile_phase
from fedjax_skew.simulation.pure import make_simulation


class Normalized(nn.Module):
    """The smallest network with batch normalisation."""

    @nn.compact
    def __call__(self, x, *, train, where=None):
        x = Norm(name="norm0")(x, train, where)
        return nn.Dense(3, name="head")(x), x


@pytest.fixture(scope="module")
def simulation(tiny_config, blobs):
    config = tiny_config(method="fedbn", participation=0.5, num_personal_eval_clients=6)
    return make_simulation(config, dataset=blobs, module=Normalized())


@pytest.fixture(scope="module")
def run(simulation):
    """One round of 3 of the 6 clients, with changed samples."""
    one = jax.jit(simulation.round)

    def run(x):
        arrays = simulation.arrays
        arrays = arrays._replace(data=arrays.data._replace(x=jnp.asarray(x)))
        return one(simulation.init(), arrays)[0]

    return run


def rows_equal(a, b):
    """``[K]`` whether two kept states agree in everything, client by client."""
    same = [
        (np.asarray(x[0]) == np.asarray(y[0])).reshape(x.shape[1], -1).all(-1)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        if x.size
    ]
    return np.logical_and.reduce(same)


def test_statistics_never_move_between_clients(simulation, run):
    data = simulation.problem.data
    state = run(data.x)
    took_part = ~rows_equal(state.clients.method, simulation.init().clients.method)
    assert took_part.sum() == 3
    other = int(np.flatnonzero(took_part)[0])
    first, last = data.offsets[0, other : other + 2]
    x = data.x.copy()
    x[data.order[0, first:last]] *= 50
    changed = run(x)
    same = rows_equal(state.clients.method, changed.clients.method)
    np.testing.assert_array_equal(np.flatnonzero(~same), [other])


def test_a_clients_own_model_has_its_own_statistics(simulation, run):
    problem = simulation.problem
    state = run(problem.data.x)
    scores = compile_phase(problem, problem.phases[0], state, simulation.arrays).clients(state).test
    assert scores.confusion.shape == (1, 6, 3, 3)
    kept = jax.tree.map(lambda a: a[0], state.clients.method)
    norm = jax.tree.structure(state.params["norm0"])
    for k in (0, 5):
        params = {
            "head": jax.tree.map(lambda a: a[0], state.params["head"]),
            "norm0": jax.tree.unflatten(norm, [a[k] for a in kept["leaves"]]),
        }
        stats = jax.tree.map(lambda a, k=k: a[k], kept["stats"])
        logits = problem.phases[0].model.apply(params, stats, problem.dataset.x_test)[0].logits
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
