"""The target of a program, which makes every choice that depends on the kind of device.

A target is a value, so that a program can be traced, lowered and inspected for an accelerator on a
machine that has none. Layers and loops never query the available backend.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
from jax.sharding import Mesh

from fedjax_skew.errors import unknown

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
PRECISIONS = ("default", "high", "highest")

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

# Operations of one step of a chunk that suffice to hide kernel launches on an accelerator.
_CHUNK_FLOPS = 1e10
_MAX_CHUNK = 16
_STEPS_PER_DRAW = 32


@dataclasses.dataclass(frozen=True)
class Target:
    """The kind of device for which programs are compiled.

    Attributes:
        platform: ``"cpu"``, ``"cuda"``, ``"rocm"`` or ``"tpu"``.
        matmul_precision: precision of float32 products, as in ``jax.default_matmul_precision``;
            ``"default"`` keeps JAX's own setting.
        deterministic: whether results on a GPU must be bit-identical every time.
    """

    platform: str
    matmul_precision: str = "default"
    deterministic: bool = False

    def __post_init__(self):
        if self.platform not in PLATFORMS:
            raise unknown("target", self.platform, PLATFORMS)
        if self.matmul_precision not in PRECISIONS:
            raise unknown("matmul_precision", self.matmul_precision, PRECISIONS)

    @property
    def conv_impl(self) -> str:
        """The fastest implementation of convolutions on the platform; see ``models.build``."""
        return "native" if self.platform == "cpu" else "grouped"

    def clients_per_chunk(self, step_flops: Callable[[], float]) -> int:
        """Returns the number of clients to train together on a device.

        One client keeps a CPU core busy. On an accelerator, a small model needs many clients to
        amortise the cost of kernel launches, whereas one client of a large model fills the device,
        and more clients would only use memory and wait for the one with the most steps.

        Args:
            step_flops: counts the floating point operations of one local step of one client; it is
                called only if the number is needed.
        """
        if self.platform == "cpu":
            return 1
        return int(min(max(_CHUNK_FLOPS // max(step_flops(), 1.0), 1), _MAX_CHUNK))

    @property
    def sequential_augmentation(self) -> bool:
        """Whether images are augmented one after the other; see ``data.autoaugment``."""
        return self.platform == "cpu"

    @property
    def steps_per_draw(self) -> int:
        """The number of local steps whose samples are drawn together; see ``LocalSpec``."""
        return 1 if self.platform == "cpu" else _STEPS_PER_DRAW

    def compiler_options(self) -> dict[str, bool]:
        """Returns XLA's options for rounds and evaluations.

        A deterministic program for a GPU has no atomic additions, and its kernels are not selected
        by autotuning.
        """
        if self.deterministic and self.platform in ("cuda", "rocm"):
            return {"xla_gpu_deterministic_ops": True}
        return {}

    def precision(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context manager under which programs are traced."""
        if self.matmul_precision == "default":
            return contextlib.nullcontext()
        return jax.default_matmul_precision(self.matmul_precision)


def traced_for_target(fn: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Traces a function with the precision of the target of its first argument, a ``RoundSpec``."""

    @functools.wraps(fn)
    def traced(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        spec: Any = args[0]
        with spec.target.precision():
            return fn(*args, **kwargs)

    return traced


def platform_of(mesh: Mesh) -> str:
    """Returns the platform of the mesh's devices, by the name that JAX uses for lowering."""
    device: Any = mesh.devices.flat[0]
    if device.platform != "gpu":
        return device.platform
    version = getattr(device.client, "platform_version", "")
    return "rocm" if "rocm" in version.lower() else "cuda"
