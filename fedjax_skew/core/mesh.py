"""Devices: one mesh axis ``clients`` over all of them."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def client_mesh(num_devices: int = 0) -> Mesh:
    """A mesh over the first ``num_devices`` devices, or over all of them for 0."""
    devices = jax.devices()
    if num_devices > len(devices):
        raise ValueError(
            f"num_devices={num_devices} is more than this machine has; it must be 0 (all) or at "
            f"most {len(devices)}."
        )
    return Mesh(np.array(devices[: num_devices or len(devices)]), ("clients",))


def replicate(tree, mesh: Mesh):
    """Puts a copy of every array on every device of the mesh."""
    return jax.device_put(tree, NamedSharding(mesh, P()))
