"""The rooms of the package and the direction of their imports."""

import ast
import inspect
import pathlib
import subprocess
import sys

import pytest

import fedjax_skew

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "fedjax_skew"

# What each room may import of the project.
ALLOWED = {
    "losses": set(),
    "metrics": set(),
    "native": set(),
    "data": {"errors", "checks", "native"},
    "models": {"errors", "native"},
    "methods": {"errors", "checks", "trees", "losses", "models", "metrics"},
    "engine": {"errors", "trees", "losses", "metrics", "data", "models", "methods"},
    "simulation": {"errors", "trees", "config", "metrics", "data", "models", "methods", "engine"},
    "runs": {"errors", "config", "data", "methods", "engine", "simulation"},
    "report": {"errors", "config", "metrics", "data", "methods", "models", "runs"},
}


def project_imports(path: pathlib.Path) -> set[str]:
    """Rooms or top-level modules of the project that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "fedjax_skew":
                found |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names}
            elif parts[0] in ("experiments", "configs"):
                found.add(parts[0])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "fedjax_skew" and len(parts) > 1:
                    found.add(parts[1])
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_arrows_point_one_way(room):
    for path in sorted((PACKAGE / room).rglob("*.py")):
        extra = project_imports(path) - ALLOWED[room] - {room}
        assert not extra, f"{path.relative_to(ROOT)} imports {sorted(extra)}"


def test_no_method_is_named_in_the_engine():
    from fedjax_skew.methods import REGISTRY

    for path in sorted((PACKAGE / "engine").rglob("*.py")):
        words = {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not words & set(REGISTRY), path


def test_the_package_itself_imports_nothing_heavy():
    code = "import sys, fedjax_skew; print(sorted(m for m in sys.modules if m in ('jax', 'flax')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_files_are_read_without_executing_anything():
    """No module that unpickles or evaluates, and no numpy file with Python objects."""
    for path in [p for room in ("fedjax_skew", "experiments") for p in (ROOT / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not set(names) & {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec"), path
                objects = [k.value for k in node.keywords if k.arg == "allow_pickle"]
                assert all(ast.unparse(value) == "False" for value in objects), path


def test_the_public_api_is_what_dir_lists():
    assert dir(fedjax_skew) == fedjax_skew.__all__
    for name in dir(fedjax_skew):
        value = getattr(fedjax_skew, name)
        assert inspect.getdoc(value), name
        assert f"``{name}``" in fedjax_skew.__doc__
    with pytest.raises(AttributeError, match="no_such"):
        _ = fedjax_skew.no_such


def test_type_checkers_see_the_public_api():
    block = next(
        node
        for node in ast.parse(pathlib.Path(fedjax_skew.__file__).read_text()).body
        if isinstance(node, ast.If)
    )
    seen = {}
    for node in block.body:
        for alias in node.names:
            seen[alias.asname] = f"{node.module}.{alias.name}"
    places = {name: f"fedjax_skew.{place}" for name, place in fedjax_skew._PLACES.items()}
    assert seen == places
