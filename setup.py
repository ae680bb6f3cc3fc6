"""Installs the library ``fedjax_skew``; the experiment binaries run from a checkout."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.*)"', (ROOT / "fedjax_skew/__init__.py").read_text())[1]

EXTRAS = {
    # Datasets from TFDS and from image files.
    "data": [
        "array-record>=0.5; sys_platform != 'win32'",
        "importlib_resources>=6.0",  # TFDS imports it without requiring it.
        "pillow>=10.0",
        "tensorflow-datasets>=4.9.7",
        "tqdm>=4.66",
    ],
    # Methods that cluster clients.
    "methods": ["scikit-learn>=1.3"],
    # Run directories: checkpoints, progress, TensorBoard.
    "runs": [
        "orbax-checkpoint>=0.11.5,<1",
        "tensorboardX>=2.6",
        "tqdm>=4.66",
    ],
    # Tables, figures and pages of runs.
    "report": [
        "jinja2>=3.1",
        "matplotlib>=3.8",
        "pillow>=10.0",
        "scikit-learn>=1.3",
        "threadpoolctl>=3.2",
    ],
}
EXTRAS["all"] = sorted({name for names in EXTRAS.values() for name in names})
EXTRAS |= {
    "test": [
        *EXTRAS["all"],
        "hypothesis>=6.100",
        "mypy>=1.10",
        "pytest>=8.0",
        "pytest-xdist>=3.5",
        "ruff>=0.6",
    ],
    "docs": [*EXTRAS["all"], "furo>=2024.1.29", "myst-nb>=1.1", "sphinx>=7.2"],
    "prepare": [*EXTRAS["data"], "tensorflow>=2.16"],
    "bench": [
        "fedjax>=0.0.17",
        "torch>=2.2",
    ],  # pfl asks for an older absl-py; see experiments/benchmark.py.
    "ray": ["ray>=2.30"],
    "wandb": ["wandb>=0.16"],
    "mlflow": ["mlflow>=2.10"],
    # To run on NVIDIA GPUs: CUDA and its libraries; the driver must be there.
    "accelerators": ["jax[cuda12]; sys_platform == 'linux'"],
    # To compile for GPUs and TPUs that are not there (experiments/compile_report.py): the compilers
    # of the version of jax, without CUDA. Best in an environment of its own.
    "compile": ["jax[cuda12-local,tpu]; sys_platform == 'linux'"],
}

setup(
    name="fedjax_skew",
    version=VERSION,
    description="Federated learning under label skew, vectorised in JAX",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["fedjax_skew", "fedjax_skew.*"]),
    package_data={
        "fedjax_skew": ["py.typed"],
        "fedjax_skew.native": ["*.cc", "*.h"],
        "fedjax_skew.report": ["templates/*"],
    },
    install_requires=[
        "absl-py>=2.1",
        "chex>=0.1.87",
        "flax>=0.10.4",
        "jax>=0.6.2",
        "ml_collections>=0.1.1",
        "numpy>=1.26",
        "optax>=0.2.5",
        "scipy>=1.11.1",
    ],
    extras_require=EXTRAS,
)
