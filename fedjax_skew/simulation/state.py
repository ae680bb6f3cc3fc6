"""States of a problem before the first round and at the start of a later phase."""

import hashlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_skew import trees
from fedjax_skew.engine.client_state import init_client_state
from fedjax_skew.engine.keys import Stream, stream_keys
from fedjax_skew.engine.local import ClientState
from fedjax_skew.engine.mesh import fetch, replicate
from fedjax_skew.engine.round import State, state_shardings
from fedjax_skew.methods.base import InitContext
from fedjax_skew.simulation.phases import Phase
from fedjax_skew.simulation.problem import Problem

PyTree = Any


def initial_state(problem: Problem, keys: jax.Array | None = None) -> State:
    """Returns the state before the first round, with independent random values for each seed.

    Args:
        problem: the problem.
        keys: raw PRNG keys ``[S, 2]`` that replace those of the configured seeds.
    """
    phase = problem.phases[0]
    keys = problem.keys if keys is None else keys
    sample = jnp.asarray(problem.dataset.x_train[:1])

    def init(keys):
        return jax.vmap(lambda key: phase.model.init(key, sample))(stream_keys(keys, Stream.INIT))

    params, stats = jax.jit(init)(keys)
    if problem.given.params is not None:
        params, stats = _given_params(problem.given.params, params, stats)
    return phase_state(problem, phase, params, stats, keys)


def abstract_state(problem: Problem) -> State:
    """Returns the shapes and shardings of ``initial_state``, for programs that are only traced."""
    shapes = jax.eval_shape(lambda: initial_state(problem))
    shardings = state_shardings(problem.phases[0].spec.mesh)

    def place(shapes, sharding):
        return jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), shapes
        )

    return State(*(place(*pair) for pair in zip(shapes, shardings, strict=True)))


def phase_state(
    problem: Problem, phase: Phase, params: PyTree, stats: PyTree, keys: jax.Array | None = None
) -> State:
    """Returns the initial state of a phase for given models ``[S, ...]``, on its devices."""
    keys = problem.keys if keys is None else keys
    method, mesh = phase.method, phase.spec.mesh
    server = client_state = None
    if method.init:
        contexts = _init_contexts(problem, phase, params, stats, keys)
        states = [method.init(context) for context in contexts]
        server = trees.stack([s.server for s in states])
        client_state = trees.stack([s.client for s in states])
    momentum = None
    if phase.spec.local.keep_momentum:
        momentum = jax.vmap(phase.spec.local.optimizer().init)(params)
    placement = problem.config.state_placement
    client_state = init_client_state(
        ClientState(client_state, momentum), problem.info.num_clients, mesh, placement
    )
    params, stats, server, first, keys = replicate(
        (params, stats, server, np.int32(phase.first), keys), mesh
    )
    return State(params, stats, server, client_state, first, keys)


def start_next_phase(problem: Problem, ended: Phase, state: State) -> State:
    """Returns the initial state of the next phase, which is computed on the host."""
    phase = problem.phases[problem.phases.index(ended) + 1]
    assert ended.method.next_phase is not None
    params, stats, server, keys = fetch((state.params, state.stats, state.server, state.keys))
    made = [
        ended.method.next_phase.transition(
            context, context.params, context.stats, trees.index(server, s)
        )
        for s, context in enumerate(_init_contexts(problem, ended, params, stats, keys))
    ]
    params, stats = (trees.stack(list(part)) for part in zip(*made, strict=True))
    return phase_state(problem, phase, params, stats, keys)


def bytes_per_client(clients: PyTree) -> int:
    """Returns the bytes that one client keeps between rounds, from the state ``[S, K, ...]``."""
    leaves = jax.tree.leaves(clients)
    return sum(math.prod(leaf.shape[2:]) * leaf.dtype.itemsize for leaf in leaves)


def fingerprint(tree: PyTree) -> str:
    """Returns a hash of all values of a pytree."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()[:16]


def _init_contexts(
    problem: Problem, phase: Phase, params: PyTree, stats: PyTree, keys: jax.Array
) -> list[InitContext]:
    """Returns the contexts of a method's ``init``, one per seed."""
    method_keys = stream_keys(keys, Stream.METHOD, phase.first)
    return [
        InitContext(
            info=problem.info,
            model=phase.model,
            params=trees.index(params, s),
            stats=trees.index(stats, s),
            class_counts=problem.partitions[s].class_counts,
            key=method_keys[s],
        )
        for s in range(len(problem.seeds))
    ]


def _given_params(given: PyTree, params: PyTree, stats: PyTree) -> tuple[PyTree, PyTree]:
    """Returns given parameters, or those of flax variables, with an axis of seeds."""
    if isinstance(given, dict) and "params" in given and "params" not in params:
        stats = _seeds_axis("batch_stats", given["batch_stats"], stats) if stats else stats
        given = given["params"]
    return _seeds_axis("params", given, params), stats


def _seeds_axis(name: str, given: PyTree, like: PyTree) -> PyTree:
    """Checks the shapes, and broadcasts over the seeds unless the axis is present."""
    found, expected = (str(jax.tree.structure(tree)) for tree in (given, like))
    if found != expected:
        raise ValueError(f"{name} has the structure {found}, but the model's is {expected}.")

    def fit(path, leaf, expected):
        leaf = np.asarray(leaf)
        if leaf.shape not in (expected.shape, expected.shape[1:]):
            where = jax.tree_util.keystr(path, simple=True, separator=".")
            raise ValueError(
                f"{name}.{where} has the shape {leaf.shape}, but the model needs "
                f"{expected.shape[1:]}, or {expected.shape} with one entry per seed."
            )
        # A copy, because rounds donate their input buffers.
        return jnp.array(np.broadcast_to(leaf, expected.shape), expected.dtype)

    return jax.tree_util.tree_map_with_path(fit, given, like)
