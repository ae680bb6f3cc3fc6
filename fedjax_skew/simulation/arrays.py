"""The dataset of a problem as arrays on its devices, or as their shapes."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine import host
from fedjax_skew.engine.evaluate import TestSet, batches
from fedjax_skew.engine.mesh import place, replicate
from fedjax_skew.simulation.problem import Problem

PyTree = Any


class Arrays(NamedTuple):
    """The dataset on the devices: the clients' data, and the sets on which models are evaluated."""

    data: FederatedData
    tests: tuple[TestSet, ...]


def device_arrays(problem: Problem) -> Arrays:
    """Puts the data on the devices, except for what the configuration keeps on the host."""
    data, tests = _host_arrays(problem)
    mesh = problem.phases[0].spec.mesh
    return Arrays(replicate(data, mesh), place(tests, mesh, P("clients")))


def abstract_arrays(problem: Problem) -> Arrays:
    """Returns the shapes and shardings of ``device_arrays``, for programs that are only traced."""
    data, tests = _host_arrays(problem)
    mesh = problem.phases[0].spec.mesh
    return Arrays(shapes_on(data, mesh, P()), shapes_on(tests, mesh, P("clients")))


def shapes_on(tree: PyTree, mesh: Mesh, spec: P) -> PyTree:
    """Returns the shapes of arrays with their sharding on a mesh."""
    sharding = NamedSharding(mesh, spec)
    return jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding),
        jax.eval_shape(lambda: tree),
    )


def _host_arrays(problem: Problem) -> Arrays:
    """Returns the data that belongs on the devices as numpy arrays."""
    config, dataset = problem.config, problem.dataset
    mesh = problem.phases[0].spec.mesh
    size = config.eval_batch_size
    tests = tuple(
        batches(
            getattr(dataset, f"x_{name}"), getattr(dataset, f"y_{name}"), size, mesh.devices.size
        )
        for name in scored_sets(problem)
    )
    data = problem.data
    if config.dataset.placement == "host":
        data = host.tables(data, [phase.method for phase in problem.phases])
    return Arrays(data, tests)


def own_sets(problem: Problem, clients: np.ndarray) -> TestSet | None:
    """Returns the held-out samples of some clients ``[k]`` in batches ``[S, k, n, B, ...]``.

    The sets are padded to the size of the largest one. Without ``client_holdout``, the result is
    None.
    """
    if not problem.holdouts or not len(clients):
        return None
    ids = [[p.order[p.offsets[k] : p.offsets[k + 1]] for k in clients] for p in problem.holdouts]
    longest = max(1, *(len(own) for row in ids for own in row))
    size = min(problem.config.eval_batch_size, longest)
    width = -(-longest // size) * size
    padded = np.array([[np.pad(own, (0, width - len(own))) for own in row] for row in ids])
    where = np.array([[np.arange(width) < len(own) for own in row] for row in ids])
    x, labels = problem.dataset.x_train[padded], problem.dataset.y_train[padded]

    def cut(a):
        return a.reshape(*a.shape[:2], -1, size, *a.shape[3:])

    return TestSet(cut(x), cut(labels.astype(np.int32)), cut(where))


def scored_sets(problem: Problem) -> tuple[str, ...]:
    """Returns the parts of the dataset on which models are scored, as in ``Programs.scores``."""
    validation = ("validation",) if problem.dataset.x_validation is not None else ()
    return ("test", *validation, *(("train",) if problem.config.eval_train_set else ()))
