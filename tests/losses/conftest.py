"""What the tests of all loss kernels share: float64, one problem, and every kernel on it."""

import contextlib
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_skew import losses

# The arguments of every kernel, as keys of the problem below. No gradient flows to those in
# brackets. A new kernel needs a line here and a test that compares it with numpy.
ARGUMENTS = {
    "adaptive_logit": "logits labels counts",
    "balanced_softmax": "logits labels counts",
    "calfat": "logits labels counts",
    "class_center": "features labels (centers) present",
    "class_importance_weights": "(table) (synthetic) present",
    "class_query": "logits a b",
    "classifier_variance": "logits",
    "cosine_logits": "features columns",
    "cross_entropy": "logits labels",
    "dimensional_decorrelation": "features",
    "distillation": "logits (teacher)",
    "divergence_penalty": "features labels",
    "ensemble_logits": "client_logits weights r norms",
    "feature_decorrelation": "features",
    "feature_uniformity": "features",
    "fedlc": "logits labels counts",
    "focal": "logits labels",
    "gravitation": "heads held",
    "intra_class_decorrelation": "features labels",
    "label_masking_distillation": "logits labels (teacher) counts",
    "local_logit_calibration": "logits labels (synthetic)",
    "logit_suppression": "logits labels counts",
    "logit_wasserstein": "means vars held",
    "model_contrastive": "features (near) (far)",
    "normalized_distillation": "logits teacher",
    "not_true_distillation": "logits labels (teacher)",
    "prediction_entropy": "logits counts",
    "prototype_distance": "features labels (centers) present",
    "restricted_softmax": "logits labels counts",
    "simplex_etf": "(matrix)",
    "supervised_contrastive": "features labels",
    "synthetic_logits": "means (distances)",
    "unbalanced_softmax": "logits labels counts",
    "vacant_class_distillation": "logits (teacher) counts",
    "weighted_binary_cross_entropy": "logits labels a b",
}

# Static options that have no default, and optional arrays to try besides the defaults.
REQUIRED = {
    "intra_class_decorrelation": {"num_classes": 5},
    "synthetic_logits": {"num_neighbors": 2},
}
EXTRA = {
    "balanced_softmax": [{"eps": 1e-9}],
    "divergence_penalty": [{"threshold": -1.0}],
    "fedlc": [{"min_count": 1e-8}],
}

# Arguments with one row per example, which ``where`` masks.
ROWS = ("logits", "teacher", "features", "near", "far")


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel with some of its options.

    Attributes:
        name: of the kernel.
        static: options known when the program is traced.
        scalars: hyper-parameters handed over as arrays.
    """

    name: str
    static: tuple[tuple[str, object], ...]
    scalars: tuple[tuple[str, float], ...]

    @property
    def constants(self) -> set[str]:
        """Keys of the arguments to which no gradient flows."""
        words = ARGUMENTS[self.name].split()
        return {word[1:-1] for word in words if word.startswith("(")}

    @property
    def masked(self) -> bool:
        """Whether the kernel takes a row mask."""
        return "where" in inspect.signature(getattr(losses, self.name)).parameters

    def __call__(self, floats: dict[str, jax.Array], p: dict[str, jax.Array]) -> jax.Array:
        """The kernel on a problem, in which ``floats`` replaces arrays and scalars."""
        words = [word.strip("()") for word in ARGUMENTS[self.name].split()]
        options = {**dict(self.static), **{name: floats[name] for name, _ in self.scalars}}
        if self.masked:
            options["where"] = p["where"]
        return getattr(losses, self.name)(*({**p, **floats}[word] for word in words), **options)

    def floats(self, p: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Every array and scalar of a problem that a gradient can be taken of."""
        words = [word.strip("()") for word in ARGUMENTS[self.name].split()]
        arrays = {word: p[word] for word in words if p[word].dtype.kind not in "bi"}
        width = np.float64 if any(a.dtype == np.float64 for a in arrays.values()) else np.float32
        return arrays | {name: np.asarray(value, width) for name, value in self.scalars}


def cases() -> dict[str, Case]:
    """Every kernel with its defaults, and with each other form, flag and extra option."""
    found = {}
    for name in losses.__all__:
        parameters = inspect.signature(getattr(losses, name)).parameters.values()
        hints = typing.get_type_hints(getattr(losses, name))
        options = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "where"]
        changes: list[dict[str, object]] = [{}]
        for p in options:
            if typing.get_origin(hints[p.name]) is typing.Literal:
                words = typing.get_args(hints[p.name])
                changes += [{p.name: word} for word in words if word != p.default]
            elif hints[p.name] is bool:
                changes.append({p.name: not p.default})
        changes += EXTRA.get(name, [])
        for change in changes:
            values = {p.name: p.default for p in options} | REQUIRED.get(name, {}) | change
            arrays = {k: v for k, v in values.items() if type(v) is float}
            static = {k: v for k, v in values.items() if k not in arrays and v is not None}
            label = "-".join([name, *(f"{k}={v}" for k, v in change.items())])
            found[label] = Case(name, tuple(static.items()), tuple(arrays.items()))
    return found


CASES = cases()


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    """Every kernel in turn, with each of its options."""
    return CASES[request.param]


@pytest.fixture(params=sorted(label for label in CASES if "-" not in label))
def plain_case(request: pytest.FixtureRequest) -> Case:
    """Every kernel in turn, with its defaults."""
    return CASES[request.param]


@pytest.fixture(scope="session")
def arguments() -> dict[str, str]:
    """The table of the kernels' arguments."""
    return ARGUMENTS


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
            "table": normal(num_classes, num_classes),
            "synthetic": normal(num_classes, num_classes),
            "client_logits": normal(clients, size, num_classes),
            "weights": np.full(clients, 1 / clients, np.float32),
            "r": normal(clients, num_classes),
            "norms": np.linspace(1, 3, clients, dtype=np.float32),
            "a": normal(num_classes),
            "b": normal(num_classes),
            "columns": normal(width, num_classes),
            "matrix": normal(num_classes + 2, num_classes),
        }

    return build


@functools.cache
def compiled(case: Case) -> Callable:
    """Value of a case and its gradient with respect to all arrays and scalars, compiled once."""

    def total(floats: dict[str, jax.Array], p: dict[str, jax.Array]) -> tuple:
        value = case(floats, p)
        # Distances may be infinite; their gradients must not be.
        return jnp.where(jnp.isfinite(value), value, 0).sum(), value

    return jax.jit(jax.value_and_grad(total, has_aux=True))


@pytest.fixture(scope="session")
def value_and_gradient() -> Callable:
    """Evaluates a case on a problem."""

    def run(case: Case, p: dict[str, np.ndarray], **scalars: float) -> tuple[np.ndarray, dict]:
        floats = case.floats(p) | {name: np.float32(value) for name, value in scalars.items()}
        (_, value), gradient = compiled(case)(floats, p)
        return np.asarray(value), {name: np.asarray(g) for name, g in gradient.items()}

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
