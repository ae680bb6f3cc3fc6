"""What the tests of all loss kernels share: float64, one problem, and every kernel on it."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest

from fedjax_skew import losses


@pytest.fixture(scope="session")
def double() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A context in which JAX computes in float64 when given float64."""

    @contextlib.contextmanager
    def enabled() -> Iterator[None]:
        jax.config.update("jax_enable_x64", True)
        try:
            yield
        finally:
            jax.config.update("jax_enable_x64", False)

    return enabled


@pytest.fixture(scope="session")
def problem() -> Callable[..., dict[str, np.ndarray]]:
    """Builds one set of inputs that every kernel can take its arguments from."""

    def build(counts=(5, 0, 9, 1, 0), size=6, width=3, clients=4, seed=0, scale=1.0):
        rng = np.random.default_rng(seed)
        counts = np.array(counts)
        num_classes = len(counts)
        held = np.flatnonzero(counts) if counts.any() else np.arange(num_classes)

        def normal(*shape):
            return (scale * rng.normal(size=shape)).astype(np.float32)

        return {
            "logits": normal(size, num_classes),
            "teacher": normal(size, num_classes),
            "labels": rng.choice(held, size=size).astype(np.int32),
            "counts": counts.astype(np.int32),
            "features": normal(size, width),
            "near": normal(size, width),
            "far": normal(size, width),
            "centers": normal(num_classes, width),
            "present": counts > 0,
            "where": np.arange(size) < max(size - 2, 1),
            "heads": normal(clients, num_classes, width),
            "held": rng.random((clients, num_classes)) < 0.7,
            "means": normal(clients, num_classes, num_classes),
            "vars": np.abs(normal(clients, num_classes, num_classes)),
            "distances": np.abs(normal(clients, clients)),
            "synthetic": normal(num_classes, num_classes),
            "client_logits": normal(clients, size, num_classes),
            "weights": np.full(clients, 1 / clients, np.float32),
            "r": normal(clients, num_classes),
            "norms": np.linspace(1, 3, clients, dtype=np.float32),
            "a": normal(num_classes),
        }

    return build


# name -> (argument that carries the gradient, kernel as a function of it and of the problem)
KERNELS = {
    "cross_entropy": ("logits", lambda x, p: losses.cross_entropy(x, p["labels"])),
    "fedlc": ("logits", lambda x, p: losses.fedlc(x, p["labels"], p["counts"])),
    "fedlc-min_count": (
        "logits",
        lambda x, p: losses.fedlc(x, p["labels"], p["counts"], tau=0.5, min_count=1e-8),
    ),
    "fedlc-exclude_true": (
        "logits",
        lambda x, p: losses.fedlc(x, p["labels"], p["counts"], exclude_true=True),
    ),
    "balanced_softmax": (
        "logits",
        lambda x, p: losses.balanced_softmax(x, p["labels"], p["counts"]),
    ),
    "balanced_softmax-eps": (
        "logits",
        lambda x, p: losses.balanced_softmax(x, p["labels"], p["counts"], eps=1e-9),
    ),
    "restricted_softmax": (
        "logits",
        lambda x, p: losses.restricted_softmax(x, p["labels"], p["counts"]),
    ),
    "restricted_softmax-soft": (
        "logits",
        lambda x, p: losses.restricted_softmax(x, p["labels"], p["counts"], soft=True),
    ),
    "adaptive_logit": ("logits", lambda x, p: losses.adaptive_logit(x, p["labels"], p["counts"])),
    "unbalanced_softmax": (
        "logits",
        lambda x, p: losses.unbalanced_softmax(x, p["labels"], p["counts"]),
    ),
    "unbalanced_softmax-max": (
        "logits",
        lambda x, p: losses.unbalanced_softmax(x, p["labels"], p["counts"], scale="max"),
    ),
    "focal": ("logits", lambda x, p: losses.focal(x, p["labels"])),
    "calfat": ("logits", lambda x, p: losses.calfat(x, p["labels"], p["counts"])),
    "vacant_class_distillation": (
        "logits",
        lambda x, p: losses.vacant_class_distillation(x, p["teacher"], p["counts"]),
    ),
    "logit_suppression": (
        "logits",
        lambda x, p: losses.logit_suppression(x, p["labels"], p["counts"], where=p["where"]),
    ),
    "logit_suppression-published_code": (
        "logits",
        lambda x, p: losses.logit_suppression(
            x, p["labels"], p["counts"], where=p["where"], published_code=True
        ),
    ),
    "fedvls": (
        "logits",
        lambda x, p: losses.fedvls(x, p["teacher"], p["labels"], p["counts"], where=p["where"]),
    ),
    "fedvls-published_code": (
        "logits",
        lambda x, p: losses.fedvls(
            x, p["teacher"], p["labels"], p["counts"], where=p["where"], published_code=True
        ),
    ),
    "class_center": (
        "features",
        lambda x, p: losses.class_center(x, p["labels"], p["centers"], p["present"]),
    ),
    "class_center-literal": (
        "features",
        lambda x, p: losses.class_center(
            x, p["labels"], p["centers"], p["present"], literal_margin=True
        ),
    ),
    "feature_decorrelation": (
        "features",
        lambda x, p: losses.feature_decorrelation(x, where=p["where"]),
    ),
    "fedlf": (
        "features",
        lambda x, p: losses.fedlf(
            p["logits"], x, p["labels"], p["counts"], p["centers"], p["present"], where=p["where"]
        ),
    ),
    "fedlf-logits": (
        "logits",
        lambda x, p: losses.fedlf(
            x, p["features"], p["labels"], p["counts"], p["centers"], p["present"], where=p["where"]
        ),
    ),
    "gravitation": ("heads", lambda x, p: losses.gravitation(x, p["held"])),
    "logit_wasserstein": (
        "means",
        lambda x, p: losses.logit_wasserstein(x, p["vars"], p["held"], normalize=False),
    ),
    "logit_wasserstein-var": (
        "vars",
        lambda x, p: losses.logit_wasserstein(p["means"], x, p["held"], normalize=False),
    ),
    "synthetic_logits": (
        "means",
        lambda x, p: losses.synthetic_logits(x, p["distances"], num_neighbors=2),
    ),
    "local_logit_calibration": (
        "logits",
        lambda x, p: losses.local_logit_calibration(
            x, p["labels"], p["synthetic"], where=p["where"]
        ),
    ),
    "class_query": ("logits", lambda x, p: losses.class_query(x, p["a"], p["a"])),
    "ensemble_logits": (
        "r",
        lambda x, p: losses.ensemble_logits(p["client_logits"], p["weights"], x, p["norms"]),
    ),
    "calibration_distillation": (
        "logits",
        lambda x, p: losses.calibration_distillation(x, p["teacher"]),
    ),
    "calibration_distillation-teacher": (
        "teacher",
        lambda x, p: losses.calibration_distillation(p["logits"], x),
    ),
    "not_true_distillation": (
        "logits",
        lambda x, p: losses.not_true_distillation(x, p["teacher"], p["labels"], temperature=2.0),
    ),
    "label_masking_distillation": (
        "logits",
        lambda x, p: losses.label_masking_distillation(x, p["teacher"], p["labels"], p["counts"]),
    ),
    "label_masking_distillation-teacher_free": (
        "logits",
        lambda x, p: losses.label_masking_distillation(
            x, None, p["labels"], p["counts"], temperature=3.0, teacher_free=True
        ),
    ),
    "distillation": (
        "logits",
        lambda x, p: losses.distillation(x, p["teacher"], temperature=2.0),
    ),
    "model_contrastive": (
        "features",
        lambda x, p: losses.model_contrastive(x, p["near"], p["far"]),
    ),
    "manifold_reshaping": (
        "features",
        lambda x, p: losses.manifold_reshaping(
            x, p["labels"], p["counts"].shape[0], where=p["where"]
        ),
    ),
}


@pytest.fixture(params=sorted(KERNELS))
def kernel(request: pytest.FixtureRequest) -> tuple[str, Callable]:
    """Each kernel in turn, options included, and the name of the argument with a gradient."""
    return KERNELS[request.param]


@pytest.fixture(params=sorted(name for name in KERNELS if "-" not in name))
def plain_kernel(request: pytest.FixtureRequest) -> tuple[str, Callable]:
    """Each kernel in turn with default options only."""
    return KERNELS[request.param]


@pytest.fixture(scope="session")
def covered() -> set[str]:
    """Names of the kernels in the table above."""
    return {name.split("-")[0] for name in KERNELS}


@functools.cache
def compiled(function: Callable) -> Callable:
    """Value and gradient of a kernel of the table, compiled once for all tests."""

    def total(x: jax.Array, p: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        value = function(x, p)
        return value.sum(), value

    return jax.jit(jax.value_and_grad(total, has_aux=True))


@pytest.fixture(scope="session")
def value_and_gradient() -> Callable:
    """Evaluates a kernel of the table on a problem."""

    def run(
        kernel: tuple[str, Callable], p: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        name, function = kernel
        (_, value), gradient = compiled(function)(p[name], p)
        return np.asarray(value), np.asarray(gradient)

    return run


@functools.cache
def compiled_with(kernel: Callable, options: tuple[tuple[str, object], ...]) -> Callable:
    """A kernel with fixed options, compiled once for all tests."""
    return jax.jit(lambda args, arrays: kernel(*args, **arrays, **dict(options)))


@pytest.fixture(scope="session")
def agrees(double: Callable) -> Callable[..., None]:
    """Compares a kernel with a numpy reference, in float64 and in float32."""

    def cast(value: object, dtype: type) -> object:
        floating = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        return value.astype(dtype) if floating else value

    def check(kernel: Callable, reference: Callable, *args: object, **options: object) -> None:
        wide = [cast(arg, np.float64) for arg in args]
        expected = reference(*wide, **options)
        arrays = {key: value for key, value in options.items() if isinstance(value, np.ndarray)}
        fixed = {key: value for key, value in options.items() if key not in arrays}
        run = compiled_with(kernel, tuple(sorted(fixed.items())))
        with double():
            value = np.asarray(run(wide, arrays))
        assert value.dtype == np.float64
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
        value = np.asarray(run([cast(arg, np.float32) for arg in args], arrays))
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)

    return check
