"""Tiny problems that every test may share."""

import dataclasses
import gc
import os
from importlib import metadata

# Eight devices are simulated; without optimisations programs compile in a quarter of the time.
# Newer versions end at a flag they do not have.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    + " --xla_cpu_use_fusion_emitters=false"
    * metadata.version("jaxlib").startswith(("0.6.", "0.7.", "0.8.", "0.9.", "0.10.")),
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pathlib
import tempfile

import jax
import numpy as np
import pytest

from fedjax_skew.config import default_config
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.engine.mesh import replicate
from fedjax_skew.simulation.pure import make_simulation


def pytest_configure(config):
    """Tests of one session share compiled programs, also between parallel workers."""
    gc.set_threshold(200_000, 50, 1000)  # Tracing makes much garbage: an eighth of the time.
    session = os.environ.setdefault("FEDJAX_SKEW_TEST_SESSION", tempfile.mkdtemp())
    jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(session) / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _blobs() -> Dataset:
    """240 + 90 points of 3 classes in 6 dimensions; linearly separable but for noise."""
    rng = np.random.default_rng(0)
    centers = 2.0 * rng.normal(size=(3, 6))

    def draw(n):
        labels = np.arange(n, dtype=np.int32) % 3
        return (centers[labels] + rng.normal(size=(n, 6))).astype(np.float32), labels

    return Dataset("blobs", *draw(240), *draw(90), 3, None, (), ())


def _images() -> Dataset:
    """160 + 40 images of 8x8x3 pixels, 4 classes that differ in colour and texture."""
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 160, (4, 8, 8, 3))

    def draw(n):
        labels = np.arange(n, dtype=np.int32) % 4
        noise = rng.integers(0, 90, (n, 8, 8, 3))
        return (patterns[labels] + noise).astype(np.uint8), labels

    x_train, y_train = draw(160)
    x_test, y_test = draw(40)
    return Dataset("images", x_train, y_train, x_test, y_test, 4, None, (0.5,) * 3, (0.25,) * 3)


@pytest.fixture(scope="session")
def blobs() -> Dataset:
    return _blobs()


@pytest.fixture(scope="session")
def images() -> Dataset:
    return _images()


@dataclasses.dataclass
class Simulated:
    """A finished simulation: the problem, the state after it, and the reports of its rounds."""

    problem: object
    state: object
    reports: list


def scan_rounds(simulation, state, rounds, *, phase=0):
    """The state after some rounds, and their stacked reports; the rounds are one program."""

    @jax.jit
    def run(state, arrays):
        def step(state, _):
            return simulation.round(state, arrays, phase=phase)

        return jax.lax.scan(step, state, length=rounds)

    return run(state, simulation.arrays)


@pytest.fixture(scope="session")
def tiny_config():
    """A configuration for the tiny problems: 6 clients, 1 device, ragged, partial last batches."""

    def make(**changes):
        config = default_config()
        config.partition = "dirichlet(beta=0.5,min_size=4)"
        config.num_clients = 6
        config.rounds = 3
        config.batch_size = 8
        config.client_lr = 0.1
        config.num_devices = 1
        config.eval_every = 1
        config.loggers = ""
        config.figures = False
        for name, value in changes.items():
            if name == "hparams":
                for method, values in value.items():
                    config.hparams[method].update(values)
            else:
                config.update_from_flattened_dict({name.replace("__", "."): value})
        return config

    return make


@pytest.fixture(scope="session")
def simulate(tiny_config, blobs):
    """Runs a method (a name or a ``Method``) for a few rounds without files.

    ``simulate("fedprox", hparams={"fedprox": {"mu": 0.0}}, rounds=2, momentum=0.9)``; nested fields
    are written with two underscores, e.g. ``server_data__labelled=0.1``.
    """

    def run(method, dataset=None, state=None, **changes):
        named = {"method": method} if isinstance(method, str) else {}
        config = tiny_config(**named, **changes)
        simulation = make_simulation(
            config,
            dataset=blobs if dataset is None else dataset,
            method=None if isinstance(method, str) else method,
        )
        phases = simulation.problem.phases
        mesh = phases[0].spec.mesh
        state = simulation.init() if state is None else replicate(state, mesh)
        reports = []
        for number, phase in enumerate(phases):
            if number:
                state = simulation.next_phase(state, phase=number - 1)
            state, report = scan_rounds(simulation, state, phase.last - phase.first, phase=number)
            reports.append(jax.tree.map(np.asarray, report))
        return Simulated(simulation.problem, state, reports)

    return run
