"""The package as a whole: light to import, documented, consistent, its examples true."""

import doctest
import importlib
import inspect
import pathlib
import pkgutil
import subprocess
import sys
import typing

import pytest
from jax.typing import ArrayLike

from fedjax_skew import losses

MODULES = sorted(module.name for module in pkgutil.iter_modules(losses.__path__))

HEAVY = """
import sys
import fedjax_skew.losses
allowed = {"fedjax_skew", "fedjax_skew.losses"}
own = {name for name in sys.modules if name.startswith("fedjax_skew") and "losses._" not in name}
heavy = {"flax", "optax", "tensorflow", "tensorflow_datasets", "matplotlib", "orbax", "sklearn",
         "ml_collections", "clu", "torch"}
print(sorted(own - allowed | heavy & set(sys.modules)))
"""


def test_importing_the_losses_imports_nothing_heavy():
    command = [sys.executable, "-c", HEAVY]
    root = pathlib.Path(losses.__file__).parents[2]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_no_kernel_shares_its_name_with_a_module():
    assert all(name.startswith("_") for name in MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name):
    result = doctest.testmod(importlib.import_module(f"{losses.__name__}.{name}"))
    assert result.failed == 0


@pytest.mark.parametrize("name", losses.__all__)
def test_every_kernel_is_documented(name):
    kernel = getattr(losses, name)
    text = inspect.getdoc(kernel)
    for part in ("Args:", "Returns:", "Example:", ">>>", "References:"):
        assert part in text, part
    assert f"``{name}``" in losses.__doc__
    for parameter in inspect.signature(kernel).parameters:
        assert f"    {parameter}: " in text, parameter


@pytest.mark.parametrize("name", losses.__all__)
def test_every_signature_follows_the_conventions(name):
    kernel = getattr(losses, name)
    parameters = inspect.signature(kernel).parameters
    hints = typing.get_type_hints(kernel)
    arrays = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert "labels" not in parameters or arrays[1] == "labels"
    assert "where" not in arrays
    for p in parameters.values():
        if p.kind is p.KEYWORD_ONLY:
            # An option of a kernel never is a bare float: hyper-parameters may be traced.
            optional = (ArrayLike, ArrayLike | None, bool, int)
            assert hints[p.name] in optional or typing.get_origin(hints[p.name]) is typing.Literal
        else:
            assert p.default is p.empty, p.name
    maps = ("class_query", "cosine_logits")  # Their values are logits, which rows do not reduce.
    if arrays[0] in ("logits", "features") and name not in maps:
        assert "where" in parameters


@pytest.mark.parametrize("name", losses.__all__)
def test_every_kernel_is_compared_with_numpy(name):
    tests = pathlib.Path(__file__).parent.glob("test_*.py")
    assert any(f"losses.{name}, " in path.read_text() for path in tests)
