"""Installs fedjax_skew and its experiment binaries."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.*)"', (ROOT / "fedjax_skew/__init__.py").read_text())[1]

setup(
    name="fedjax_skew",
    version=VERSION,
    description="Federated learning under label skew, vectorised in JAX",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["fedjax_skew*", "experiments*", "configs*"]),
    package_data={
        "fedjax_skew": ["py.typed"],
        "fedjax_skew.report": ["reference/*", "templates/*"],
        "configs": ["*/README.md", "*/*.csv"],
    },
    install_requires=[
        "absl-py>=2.1",
        "array-record>=0.5; sys_platform != 'win32'",
        "chex>=0.1.87",
        "flax>=0.10.4",
        "importlib_resources>=6.0",
        "jinja2>=3.1",
        "jax>=0.6.2",
        "matplotlib>=3.8",
        "ml_collections>=0.1.1",
        "numpy>=1.26",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11.5",
        "pillow>=10.0",
        "scikit-learn>=1.3",
        "tensorboardX>=2.6",
        "tensorflow-datasets>=4.9.7",
        "tqdm>=4.66",
    ],
    extras_require={
        "test": [
            "hypothesis>=6.100",
            "mypy>=1.10",
            "pytest>=8.0",
            "pytest-xdist>=3.5",
            "ruff>=0.6",
        ],
        "prepare": ["tensorflow>=2.16"],
        "bench": ["torch>=2.2"],
        "ray": ["ray>=2.30"],
    },
)
