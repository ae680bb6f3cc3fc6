"""Devices and processes: one mesh axis ``clients`` over all devices of all processes."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

PyTree = Any


def client_mesh(num_devices: int = 0, devices: Sequence[Any] | None = None) -> Mesh:
    """Returns a mesh over the first ``num_devices`` devices, or over all of them for 0.

    Args:
        num_devices: number of devices to use.
        devices: the available devices, which may be those of a topology for which programs are only
            compiled; ``jax.devices()`` by default.
    """
    devices = jax.devices() if devices is None else list(devices)
    if num_devices > len(devices):
        raise ValueError(
            f"num_devices={num_devices} exceeds the number of devices; it must be 0 (all) or at "
            f"most {len(devices)}."
        )
    if jax.process_count() > 1 and num_devices not in (0, len(devices)):
        raise ValueError(
            f"num_devices={num_devices} does not use all devices, which is not possible with "
            f"{jax.process_count()} processes; it must be 0 (all)."
        )
    return Mesh(np.array(devices[: num_devices or len(devices)]), ("clients",))


def place(tree: PyTree, mesh: Mesh, spec: P) -> PyTree:
    """Puts arrays on the mesh; in a run with several processes, each passes the same arrays."""
    sharding = NamedSharding(mesh, spec)
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def put(a):
        a = np.asarray(a)
        return jax.make_array_from_callback(a.shape, sharding, lambda part: a[part])

    return jax.tree.map(put, tree)


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """Puts a copy of every array on every device of the mesh."""
    return place(tree, mesh, P())


def sum_over_devices(tree: PyTree) -> PyTree:
    """Sums arrays over the devices inside ``shard_map``; booleans are summed as integers."""
    return _fused(lambda flat: jax.lax.psum(flat, "clients"), tree)


def sum_to_devices(tree: PyTree) -> PyTree:
    """Sums arrays ``[D, ...]`` over the devices; device ``d`` receives part ``d``, ``[...]``."""
    return _fused(lambda flat: jax.lax.psum_scatter(flat, "clients"), tree, leading=1)


def gather_from_devices(tree: PyTree) -> PyTree:
    """Stacks the arrays ``[...]`` of all devices to ``[D, ...]`` on each of them."""
    return _fused(lambda flat: jax.lax.all_gather(flat, "clients"), tree)


def _fused(collective: Callable[[Any], Any], tree: PyTree, leading: int = 0) -> PyTree:
    """Applies a collective once per dtype instead of once per array.

    The first ``leading`` axes of the arrays are kept; the others are flattened.
    """
    leaves, structure = jax.tree.flatten(tree)
    leaves = [a.astype(jnp.int32) if a.dtype == bool else jnp.asarray(a) for a in leaves]
    made: list[Any] = [None] * len(leaves)
    for dtype in dict.fromkeys(a.dtype for a in leaves):
        members = [i for i, a in enumerate(leaves) if a.dtype == dtype]
        parts = [leaves[i].reshape(*leaves[i].shape[:leading], -1) for i in members]
        ends = np.cumsum([part.shape[-1] for part in parts])[:-1]
        flat = collective(jnp.concatenate(parts, -1))
        for i, part in zip(members, jnp.split(flat, ends, -1), strict=True):
            made[i] = part.reshape(*flat.shape[:-1], *leaves[i].shape[leading:])
    return jax.tree.unflatten(structure, made)


def fetch(tree: PyTree) -> PyTree:
    """Converts replicated arrays to numpy arrays, which every process holds in full."""
    return jax.tree.map(np.asarray, tree)


def process_max(*values: int) -> tuple[int, ...]:
    """Returns the element-wise maximum over all processes, which must all call it."""
    if jax.process_count() == 1:
        return values
    found = multihost_utils.process_allgather(np.array(values, np.int32))
    return tuple(int(v) for v in found.max(0))


@contextlib.contextmanager
def raise_together() -> Iterator[None]:
    """Makes all processes raise ``ValueError`` if one of them raises it in the block."""
    error: ValueError | None = None
    try:
        yield
    except ValueError as found:
        error = found
    (failed,) = process_max(jax.process_index() + 1 if error else 0)
    if error:
        raise error
    if failed:
        raise ValueError(f"Process {failed - 1} failed; its own message says why.")
