"""The package as a whole: light to import, documented, its examples true."""

import doctest
import importlib
import inspect
import pathlib
import pkgutil
import subprocess
import sys

import pytest

from fedjax_skew import losses

MODULES = sorted(module.name for module in pkgutil.iter_modules(losses.__path__))

HEAVY = """
import sys
import fedjax_skew.losses
heavy = ["flax", "tensorflow", "tensorflow_datasets", "matplotlib", "orbax", "ml_collections",
         "sklearn", "clu", "torch"]
rooms = ["data", "models", "methods", "core", "metrics", "report"]
heavy += [f"fedjax_skew.{room}" for room in rooms]
print(sorted(name for name in heavy if name in sys.modules))
"""


def test_importing_the_losses_imports_nothing_heavy():
    command = [sys.executable, "-c", HEAVY]
    root = pathlib.Path(losses.__file__).parents[2]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name):
    # By name, because the package's attribute may be a function of the same name.
    module = importlib.import_module(f"{losses.__name__}.{name}")
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted or name.startswith("_")


@pytest.mark.parametrize("name", losses.__all__)
def test_every_kernel_is_documented(name):
    kernel = getattr(losses, name)
    text = inspect.getdoc(kernel)
    for part in ("Args:", "Returns:", "Example:", ">>>"):
        assert part in text, part
    assert f"``{name}``" in losses.__doc__
    for parameter in inspect.signature(kernel).parameters:
        assert f"    {parameter}: " in text, parameter


SIGNATURES = {
    "cross_entropy": "logits, labels",
    "fedlc": "logits, labels, class_counts, *, tau=1.0, min_count=None, exclude_true=False",
    "balanced_softmax": "logits, labels, class_counts, *, tau=1.0, eps=None",
    "restricted_softmax": "logits, labels, class_counts, *, alpha=0.5, soft=False",
    "adaptive_logit": "logits, labels, class_counts, *, alpha=0.25",
    "unbalanced_softmax": "logits, labels, class_counts, *, scale='paper'",
    "focal": "logits, labels, *, gamma=2.0, alpha=0.25",
    "vacant_class_distillation": "logits, teacher_logits, class_counts",
    "logit_suppression": "logits, labels, class_counts, *, where=None, published_code=False",
    "fedvls": "logits, teacher_logits, labels, class_counts, *, lam=0.1, logit_weight=0.005, "
    "where=None, published_code=False",
    "class_center": "features, labels, centers, present, *, max_margin=100.0, literal_margin=False",
    "feature_decorrelation": "features, *, where=None, normalize=False",
    "fedlf": "logits, features, labels, class_counts, centers, present, *, alpha=0.25, lam=0.01, "
    "gamma=0.01, max_margin=100.0, literal_margin=False, normalize=False, where=None",
    "gravitation": "heads, present",
    "logit_wasserstein": "mean, var, present, *, normalize=True",
    "synthetic_logits": "mean_logits, distances, *, num_neighbors, eps=1e-12",
    "local_logit_calibration": "logits, labels, synthetic, *, temperature=4.0, where=None",
    "class_importance_weights": "local_mean, synthetic, present, *, temperature=4.0",
    "class_query": "logits, scale, bias",
    "ensemble_logits": "client_logits, weights, r, client_norms, *, lam=0.001",
    "calibration_distillation": "student_logits, teacher_logits",
    "not_true_distillation": "logits, teacher_logits, labels, *, temperature=1.0",
    "label_masking_distillation": "logits, teacher_logits, labels, class_counts, *, "
    "temperature=1.0, teacher_free=False",
    "model_contrastive": "z, z_global, z_previous, *, temperature=0.5",
    "manifold_reshaping": "features, labels, num_classes, *, where=None",
    "calfat": "logits, labels, class_counts, *, scale=10.0",
    "distillation": "logits, teacher_logits, *, temperature=1.0",
}


def test_signatures_are_public_and_stay():
    found = {}
    for name in losses.__all__:
        signature = inspect.signature(getattr(losses, name))
        bare = [
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in signature.parameters.values()
        ]
        found[name] = str(inspect.Signature(bare))[1:-1]
    assert found == SIGNATURES
