"""What clients keep between rounds: ``[S, K, ...]``, shared out over devices or on the host.

On devices the client axis is divided over the mesh and padded to a multiple of its size, so each of
D devices holds K / D rows. A round moves the rows of its cohort only.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_skew.engine.mesh import replicate, sum_over_devices

PyTree = Any
BY_CLIENT = P(None, "clients")


def init_client_state(template: PyTree, num_clients: int, mesh: Mesh, placement: str) -> PyTree:
    """Gives every client a copy of its seed's template ``[S, ...]``.

    Args:
        template: what one client of each seed starts with.
        num_clients: K.
        mesh: devices.
        placement: ``device``, or ``host`` for writable numpy. Zeros on the host take memory only
            when a row is first written.
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
    """Rows ``[S, M, ...]`` of the clients ``cohort [S, M]``, in a traced function."""
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


def scatter_clients(mesh: Mesh, client_state: PyTree, cohort: jax.Array, rows: PyTree) -> PyTree:
    """``client_state`` with new rows ``[S, M, ...]`` of the cohort, in a traced function."""
    if mesh.devices.size == 1:
        seeds = jnp.arange(len(cohort))[:, None]
        return jax.tree.map(lambda k, new: k.at[seeds, cohort].set(new), client_state, rows)

    def on_device(client_state, cohort, rows):
        def mine(leaf, new):
            local, own = _local(leaf, cohort)
            at = jnp.where(own, local, leaf.shape[1])
            return leaf.at[jnp.arange(len(cohort))[:, None], at].set(new, mode="drop")

        return jax.tree.map(mine, client_state, rows)

    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(BY_CLIENT, P(), P()),
        out_specs=BY_CLIENT,
        check_vma=False,
    )(client_state, cohort, rows)


def gather_host_clients(client_state: PyTree, cohort: np.ndarray) -> PyTree:
    """``gather_clients`` for client state in numpy."""
    return _rows(client_state, cohort)


def scatter_host_clients(client_state: PyTree, cohort: np.ndarray, rows: PyTree) -> None:
    """``scatter_clients`` for client state in numpy, in place."""
    seeds = np.arange(len(cohort))[:, None]

    def write(leaf, new):
        leaf[seeds, cohort] = np.asarray(new)

    jax.tree.map(write, client_state, rows)


def _rows(client_state: PyTree, cohort: Any) -> PyTree:
    seeds = np.arange(len(cohort))[:, None]
    return jax.tree.map(lambda leaf: leaf[seeds, cohort], client_state)


def _local(leaf: jax.Array, cohort: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Places of the cohort in this device's rows, and which of them are here."""
    local = cohort - jax.lax.axis_index("clients") * leaf.shape[1]
    return local, (local >= 0) & (local < leaf.shape[1])


def _on_host(leaf: np.ndarray, num_clients: int) -> np.ndarray:
    shape = (leaf.shape[0], num_clients, *leaf.shape[1:])
    if not leaf.any():
        return np.zeros(shape, leaf.dtype)
    return np.broadcast_to(leaf[:, None], shape).copy()
