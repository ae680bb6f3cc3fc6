"""The state ``[S, K, ...]`` that clients keep between rounds, on the devices or on the host.

On devices, the client axis is divided over the mesh and padded to a multiple of its size, so that
each of D devices holds K / D rows. A round moves only the rows of its cohort, from the devices that
hold them to those that train the clients. It moves D rows at a time, so that no device holds the
rows of the whole cohort.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_skew.engine.mesh import (
    gather_from_devices,
    replicate,
    sum_over_devices,
    sum_to_devices,
)

PyTree = Any
BY_CLIENT = P(None, "clients")


def init_client_state(template: PyTree, num_clients: int, mesh: Mesh, placement: str) -> PyTree:
    """Returns a state in which every client has a copy of its seed's template ``[S, ...]``.

    Args:
        template: the initial state of one client of each seed.
        num_clients: the number of clients K.
        mesh: devices.
        placement: ``device``, or ``host`` for writable numpy arrays. On the host, rows of zeros use
            memory only after they are first written.
    """
    if placement == "host":
        return jax.tree.map(lambda leaf: _on_host(np.asarray(leaf), num_clients), template)
    rows = -(-num_clients // mesh.devices.size) * mesh.devices.size

    def copies(tree):
        def broadcast(leaf):
            return jnp.broadcast_to(leaf[:, None], (leaf.shape[0], rows, *leaf.shape[1:]))

        return jax.tree.map(broadcast, tree)

    return jax.jit(copies, out_shardings=NamedSharding(mesh, BY_CLIENT))(replicate(template, mesh))


def gather_clients(mesh: Mesh, client_state: PyTree, cohort: jax.Array) -> PyTree:
    """Returns the rows ``[S, k, ...]`` of clients ``[S, k]`` on every device; may be traced."""
    if mesh.devices.size == 1:
        return _rows(client_state, cohort)

    def on_device(client_state, cohort):
        def mine(leaf):
            local, own = _local(leaf, cohort)
            rows = leaf[jnp.arange(len(cohort))[:, None], jnp.where(own, local, 0)]
            return jnp.where(own.reshape(*own.shape, *[1] * (leaf.ndim - 2)), rows, 0)

        # Exactly one device adds something other than zero.
        found = sum_over_devices(jax.tree.map(mine, client_state))
        return jax.tree.map(lambda rows, leaf: rows.astype(leaf.dtype), found, client_state)

    return jax.shard_map(
        on_device, mesh=mesh, in_specs=(BY_CLIENT, P()), out_specs=P(), check_vma=False
    )(client_state, cohort)


def deal_clients(mesh: Mesh, client_state: PyTree, cohort: jax.Array, slots: jax.Array) -> PyTree:
    """Moves the rows of a cohort to the devices that train the clients; may be traced.

    Args:
        mesh: devices.
        client_state: rows of all clients.
        cohort: client indices ``[S, M]``.
        slots: positions ``[D, R, c]`` in the flattened cohort; ``S * M`` is padding.

    Returns:
        Rows ``[D, R, c, ...]``, sharded over the devices along the first axis.
    """
    seeds, clients, _ = _find(cohort, slots)
    if mesh.devices.size == 1 or not jax.tree.leaves(client_state):
        return jax.tree.map(lambda leaf: leaf[seeds, clients], client_state)

    def on_device(client_state, seeds, clients):
        def piece(_, at):
            def mine(leaf):
                local, own = _local(leaf, at[1])
                rows = leaf[at[0], jnp.where(own, local, 0)]
                return jnp.where(own.reshape(-1, *[1] * (leaf.ndim - 2)), rows, 0)

            # Exactly one device adds something other than zero.
            return None, sum_to_devices(jax.tree.map(mine, client_state))

        _, rows = jax.lax.scan(piece, None, (_pieces(seeds), _pieces(clients)))
        return jax.tree.map(
            lambda a, leaf: a.astype(leaf.dtype).reshape(1, *slots.shape[1:], *a.shape[1:]),
            rows,
            client_state,
        )

    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(BY_CLIENT, P(), P()),
        out_specs=P("clients"),
        check_vma=False,
    )(client_state, seeds, clients)


def collect_clients(
    mesh: Mesh, client_state: PyTree, cohort: jax.Array, slots: jax.Array, rows: PyTree
) -> PyTree:
    """Writes new rows ``[D, R, c, ...]`` to ``client_state``; the inverse of ``deal_clients``."""
    seeds, clients, real = _find(cohort, slots)
    if mesh.devices.size == 1 or not jax.tree.leaves(client_state):

        def write(leaf, new):
            return leaf.at[seeds, jnp.where(real, clients, leaf.shape[1])].set(new, mode="drop")

        return jax.tree.map(write, client_state, rows)

    def on_device(client_state, seeds, clients, real, rows):
        def piece(client_state, at):
            seeds, clients, real, row = at

            def write(leaf, new):
                local, own = _local(leaf, clients)
                place = jnp.where(own & real, local, leaf.shape[1])
                return leaf.at[seeds, place].set(new.astype(leaf.dtype), mode="drop")

            return jax.tree.map(write, client_state, gather_from_devices(row)), None

        own = jax.tree.map(lambda a: a.reshape(math.prod(a.shape[:3]), *a.shape[3:]), rows)
        at = _pieces(seeds), _pieces(clients), _pieces(real), own
        return jax.lax.scan(piece, client_state, at)[0]

    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(BY_CLIENT, P(), P(), P(), P("clients")),
        out_specs=BY_CLIENT,
        check_vma=False,
    )(client_state, seeds, clients, real, rows)


def _find(cohort: jax.Array, slots: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns seeds, clients and validity of slots; padding refers to the last client."""
    at = jnp.minimum(slots, cohort.size - 1)
    return at // cohort.shape[1], cohort.reshape(-1)[at], slots < cohort.size


def _pieces(a: jax.Array) -> jax.Array:
    """Maps ``[D, R, c]`` to ``[R c, D]``, in which a row has one client of every device."""
    return a.reshape(a.shape[0], -1).T


def gather_host_clients(client_state: PyTree, cohort: np.ndarray) -> PyTree:
    """Returns the rows ``[S, k, ...]`` of clients ``[S, k]`` from numpy arrays."""
    return _rows(client_state, cohort)


def scatter_host_clients(client_state: PyTree, cohort: np.ndarray, rows: PyTree) -> None:
    """Writes the rows ``[S, k, ...]`` of clients ``[S, k]`` to numpy arrays, in place."""
    seeds = np.arange(len(cohort))[:, None]

    def write(leaf, new):
        leaf[seeds, cohort] = np.asarray(new)

    jax.tree.map(write, client_state, rows)


def _rows(client_state: PyTree, cohort: Any) -> PyTree:
    seeds = np.arange(len(cohort))[:, None]
    return jax.tree.map(lambda leaf: leaf[seeds, cohort], client_state)


def _local(leaf: jax.Array, cohort: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the positions of clients in this device's rows, and which clients it holds."""
    local = cohort - jax.lax.axis_index("clients") * leaf.shape[1]
    return local, (local >= 0) & (local < leaf.shape[1])


def _on_host(leaf: np.ndarray, num_clients: int) -> np.ndarray:
    shape = (leaf.shape[0], num_clients, *leaf.shape[1:])
    if not leaf.any():
        return np.zeros(shape, leaf.dtype)
    return np.broadcast_to(leaf[:, None], shape).copy()
