"""Compiles the rounds of a configuration for an accelerator that is not there, and reports them.

    python -m experiments.compile_report --target=a100 --config=configs/mnist.py

The packages are not installed by default: ``jax-cuda12-plugin`` and ``jax-cuda12-pjrt`` of the
version of jaxlib for GPUs (no driver is needed), ``libtpu`` for TPUs.
"""

import dataclasses
import os
import re
import time
from collections.abc import Sequence
from typing import Any

from absl import app, flags
from ml_collections import config_flags


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """What XLA must know of a device to compile for it.

    Attributes:
        platform: ``"cuda"`` or ``"tpu"``.
        memory: bytes of one device.
        topology: how XLA names one host with all its devices.
        description: fields of XLA's description of a GPU.
    """

    platform: str
    memory: float
    topology: str
    description: dict[str, Any] = dataclasses.field(default_factory=dict)


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
ACCELERATORS = {
    "a100": Accelerator(
        "cuda",
        42331013120,
        "1x1x8",
        _GPU
        | {
            "core_count": 108,
            "fpus_per_core": 64,
            "clock_rate_ghz": 1.41,
            "memory_bandwidth": 1555200000000,
            "l2_cache_size": 41943040,
            "device_memory_size": 42331013120,
            "shared_memory_per_core": 167936,
            "shared_memory_per_block_optin": 166912,
            "cuda_compute_capability": "{ major: 8 }",
        },
    ),
    "h100": Accelerator(
        "cuda",
        84942979072,
        "1x1x8",
        _GPU
        | {
            "core_count": 132,
            "fpus_per_core": 128,
            "clock_rate_ghz": 1.98,
            "memory_bandwidth": 3352320000000,
            "l2_cache_size": 52428800,
            "device_memory_size": 84942979072,
            "shared_memory_per_core": 233472,
            "shared_memory_per_block_optin": 232448,
            "cuda_compute_capability": "{ major: 9 }",
        },
    ),
    "v5e": Accelerator("tpu", 17179869184, "v5e:2x4"),
}
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


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


def devices(name: str) -> Sequence[Any]:
    """Returns devices of an accelerator that programs can be compiled for, but not run on."""
    from jax.experimental import topologies

    accelerator = ACCELERATORS[name]
    options = {}
    if accelerator.platform == "cuda":
        options = {
            "target_config": gpu_description(name, accelerator),
            "topology": accelerator.topology,
        }
    topology = accelerator.topology if accelerator.platform == "tpu" else name
    return topologies.get_topology_desc(topology, accelerator.platform, **options).devices


def report(config: Any, name: str) -> dict[str, Any]:
    """Returns memory per device, operations and compile time of the rounds of a configuration."""
    from fedjax_skew.simulation.arrays import abstract_arrays
    from fedjax_skew.simulation.problem import build
    from fedjax_skew.simulation.state import abstract_state
    from fedjax_skew.simulation.tracing import trace_rounds

    problem = build(config, devices=devices(name))
    phase = problem.phases[0]
    traced = trace_rounds(problem, phase, abstract_state(problem), abstract_arrays(problem))
    lowered = traced.lower()
    began = time.time()
    options = {"xla_gpu_autotune_level": 0} if ACCELERATORS[name].platform == "cuda" else {}
    compiled = lowered.compile(compiler_options=options)
    seconds = time.time() - began
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    peak += memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {
        "clients_per_chunk": phase.spec.clients_per_chunk,
        "arguments_gb": memory.argument_size_in_bytes / 1e9,
        "temporaries_gb": memory.temp_size_in_bytes / 1e9,
        "peak_gb": peak / 1e9,
        "fits": peak < ACCELERATORS[name].memory,
        **operations(compiled.as_text()),
        "compile_seconds": seconds,
    }


def operations(text: str) -> dict[str, int]:
    """Counts collectives and cuDNN's convolutions in a compiled program."""
    found = {name: len(re.findall(rf" {name}(?:-start)?\(", text)) for name in _COLLECTIVES}
    for kind in ("Forward", "BackwardInput", "BackwardFilter"):
        found[f"conv{kind}"] = text.count(f'custom_call_target="__cudnn$conv{kind}"')
    return {name: number for name, number in found.items() if number}


def main(argv: Sequence[str]) -> None:
    """Prints the report."""
    del argv
    for key, value in report(_CONFIG.value, _TARGET.value).items():
        print(f"{key:20s} {value:.3f}" if isinstance(value, float) else f"{key:20s} {value}")


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    _TARGET = flags.DEFINE_enum("target", "a100", list(ACCELERATORS), "Device to compile for.")
    _CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration of the run.")
    flags.mark_flag_as_required("config")
    app.run(main)
