"""C++ kernels for CPUs, compiled for this machine on first use.

They compute convolutions, products of dense layers, batch normalisation, and augmentations.

The library is kept in ``$FEDJAX_SKEW_CACHE`` or ``~/.cache/fedjax_skew``, under a name that depends
on the sources, the compiler, the processor and the version of jaxlib. ``$CXX`` selects the
compiler.
"""

import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.resources
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile

import jax
from absl import logging

TARGETS = (
    "conv",
    "image_gradient",
    "kernel_gradient",
    "conv_pool",
    "conv_pool_places",
    "conv_pool_image_gradient",
    "conv_pool_kernel_gradient",
    "dense",
    "batch_norm",
    "batch_norm_gradient",
    "crop_flip",
    "autoaugment",
)

_SOURCES = (
    "kernels.cc",
    "autoaugment.h",
    "crop_flip.h",
    "dense.h",
    "direct.h",
    "norm.h",
    "pooled.h",
    "pooled_gradients.h",
    "pooled_pixels.h",
    "pooled_winograd.h",
    "simd.h",
    "winograd.h",
)
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-ffp-contract=fast", "-fPIC", "-shared", "-w")
_COMPILERS = ("c++", "g++", "clang++")


class _Unavailable(Exception):
    """The library cannot be built; the message says why."""


def available() -> bool:
    """Returns whether the library could be compiled; if not, a warning says why."""
    return bool(_register())


def target(name: str) -> str:
    """Returns the name of one of ``TARGETS`` as XLA knows it."""
    return _register()[name]


@functools.cache
def _register() -> dict[str, str]:
    try:
        key, path = _library()
    except (_Unavailable, OSError) as error:
        logging.warning(
            "Convolutions, dense layers, batch normalisation and augmentations use slower "
            "operations of XLA, because their C++ kernels cannot be compiled: %s",
            error,
        )
        return {}
    library = ctypes.CDLL(str(path))
    names = {name: f"fedjax_skew_{name}_{key}" for name in TARGETS}
    for name, registered in names.items():
        handler = jax.ffi.pycapsule(getattr(library, name))
        jax.ffi.register_ffi_target(registered, handler, platform="cpu")
    return names


def _library() -> tuple[str, pathlib.Path]:
    """Returns the key and the path of the compiled library."""
    found = map(shutil.which, [os.environ["CXX"]] if os.environ.get("CXX") else _COMPILERS)
    compiler = next(filter(None, found), None)
    if compiler is None:
        raise _Unavailable("there is no C++ compiler (c++, g++ or clang++, or $CXX).")
    folder = importlib.resources.files(__name__)
    headers = importlib.metadata.version("jaxlib")
    digest = hashlib.sha256(" ".join((compiler, headers, *_FLAGS)).encode())
    digest.update(_processor())
    for name in _SOURCES:
        digest.update((folder / name).read_bytes())
    key = digest.hexdigest()[:16]
    root = pathlib.Path(os.environ.get("FEDJAX_SKEW_CACHE") or "~/.cache/fedjax_skew").expanduser()
    path = root / "native" / f"{key}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with importlib.resources.as_file(folder) as sources:
            _compile(compiler, sources / _SOURCES[0], path)
    return key, path


def _processor() -> bytes:
    """Returns a description of the processor, whose instructions the library may use."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_bytes().splitlines() if info.exists() else []
    kinds = (b"flags", b"Features", b"model name")
    facts = sorted({line for line in lines if line.startswith(kinds)})
    return b"\n".join(facts) or f"{platform.machine()} {platform.processor()}".encode()


def _compile(compiler: str, source: pathlib.Path, path: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = pathlib.Path(folder) / path.name
        command = [compiler, *_FLAGS, f"-I{jax.ffi.include_dir()}", str(source), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise _Unavailable(f"{compiler} failed ({lines[0]}).")
        built.replace(path)  # Another process may have built the same library.
