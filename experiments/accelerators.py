"""Descriptions of the devices that programs are compiled and estimated for."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.experimental import topologies

from fedjax_skew.errors import MissingExtra


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """What XLA needs to compile for a device, and what the estimate of time depends on.

    Attributes:
        platform: ``"cpu"``, ``"cuda"`` or ``"tpu"``.
        memory: bytes on one device that a program can use.
        peak: floating-point operations per second of matrix products, by type: ``bf16``, or the
            ``matmul_precision`` of a float32 product.
        bandwidth: bytes per second that its memory can transfer.
        launch: minimum time of one operation, in seconds.
        loop: additional time of every iteration of a loop, in seconds.
        link: bytes per second to the other devices of the host.
        latency: minimum time of one collective operation, in seconds.
        clock: cycles per second, if the compiler provides an estimate of cycles.
        on_chip: text in the layout of arrays that never leave the chip.
        topology: XLA's name for one host with all of its devices.
        description: the fields of XLA's description of a GPU.
    """

    platform: str
    memory: float
    peak: Mapping[str, float]
    bandwidth: float
    launch: float
    loop: float
    link: float
    latency: float
    clock: float = 0.0
    on_chip: str = ""
    topology: str = ""
    description: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# The share of GPU memory that JAX allocates by default.
_JAX_SHARE = 0.75
_GPU = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "shared_memory_per_block": 49152,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
}


def _gpu(
    peak: Mapping[str, float], bandwidth: float, link: float, **description: Any
) -> Accelerator:
    """Returns a GPU; ``description`` extends what all GPUs share in XLA's description."""
    return Accelerator(
        "cuda",
        memory=_JAX_SHARE * description["device_memory_size"],
        peak=peak,
        bandwidth=bandwidth,
        launch=3e-6,
        loop=15e-6,
        link=link,
        latency=20e-6,
        topology="1x1x8",
        description=_GPU | description,
    )


# Peaks, bandwidths and links are the manufacturers' figures; launch, loop and latency are
# assumptions. A GPU waits for its host in every iteration of a loop; a TPU does not. Products of
# float32 use TF32 on these GPUs, and one, three or six passes of bfloat16 on a TPU.
ACCELERATORS = {
    "a100": _gpu(
        peak={"default": 156e12, "high": 156e12, "highest": 19.5e12, "bf16": 312e12},
        bandwidth=1.555e12,
        link=300e9,
        core_count=108,
        fpus_per_core=64,
        clock_rate_ghz=1.41,
        memory_bandwidth=1555200000000,
        l2_cache_size=41943040,
        device_memory_size=42331013120,
        shared_memory_per_core=167936,
        shared_memory_per_block_optin=166912,
        cuda_compute_capability="{ major: 8 }",
    ),
    "h100": _gpu(
        peak={"default": 495e12, "high": 495e12, "highest": 67e12, "bf16": 990e12},
        bandwidth=3.35e12,
        link=450e9,
        core_count=132,
        fpus_per_core=128,
        clock_rate_ghz=1.98,
        memory_bandwidth=3352320000000,
        l2_cache_size=52428800,
        device_memory_size=84942979072,
        shared_memory_per_core=233472,
        shared_memory_per_block_optin=232448,
        cuda_compute_capability="{ major: 9 }",
    ),
    "v5e": Accelerator(
        "tpu",
        memory=15.75 * 2**30,
        peak={"default": 197e12, "high": 66e12, "highest": 33e12, "bf16": 197e12},
        bandwidth=819e9,
        launch=0.5e-6,
        loop=1e-6,
        link=50e9,
        latency=5e-6,
        clock=1.5e9,
        on_chip="S(1)",
        topology="v5e:2x4",
    ),
    # One core of a server, as measured by the benchmark. Its memory is not limited here.
    "cpu": Accelerator(
        "cpu",
        memory=math.inf,
        peak={"default": 80e9, "high": 80e9, "highest": 80e9, "bf16": 40e9},
        bandwidth=10e9,
        launch=0.2e-6,
        loop=0.0,
        link=5e9,
        latency=50e-6,
    ),
}


def devices(name: str) -> Sequence[Any]:
    """Returns the devices of a target, for which programs can be compiled but not run.

    Raises:
        MissingExtra: if the compiler of the target is not installed.
    """
    accelerator = ACCELERATORS[name]
    if accelerator.platform == "cpu":
        return jax.devices("cpu")
    options = {}
    if accelerator.platform == "cuda":
        options = {
            "target_config": gpu_description(name, accelerator),
            "topology": accelerator.topology,
        }
    topology = accelerator.topology if accelerator.platform == "tpu" else name
    try:
        return topologies.get_topology_desc(topology, accelerator.platform, **options).devices
    except (NotImplementedError, RuntimeError) as error:
        raise MissingExtra(
            f"target={name!r} needs the compiler for {accelerator.platform} "
            f"({str(error).splitlines()[0]}); install it with pip install 'fedjax_skew[compile]'."
        ) from error


def gpu_description(name: str, accelerator: Accelerator) -> str:
    """Returns XLA's description of a GPU as text."""
    fields = "\n".join(
        f"  {field} {value}" if str(value).startswith("{") else f"  {field}: {value}"
        for field, value in accelerator.description.items()
    )
    return (
        f'gpu_device_info {{\n{fields}\n}}\nplatform_name: "CUDA"\n'
        f'dnn_version_info {{ major: 9 minor: 8 }}\ndevice_description_str: "{name}"\n'
    )
