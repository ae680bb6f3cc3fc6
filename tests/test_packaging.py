"""What setup.py installs, and what the library needs."""

import ast
import pathlib
import re
import runpy
import subprocess
import sys
import types

import pytest

import fedjax_skew

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = {  # Modules whose package has another name.
    "PIL": "pillow",
    "absl": "absl-py",
    "array_record": "array-record",
    "orbax": "orbax-checkpoint",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
}
OWN = {"fedjax_skew", "experiments", "configs", "tests"}
UNDECLARED = {"pfl"}  # Asks for an older absl-py than this package; the benchmark says how.


@pytest.fixture(scope="module")
def setup():
    """The arguments that setup.py passes to setuptools."""
    found = {}
    fake = types.ModuleType("setuptools")
    fake.setup = found.update
    fake.find_packages = lambda include: include
    real = sys.modules.get("setuptools")
    sys.modules["setuptools"] = fake
    try:
        runpy.run_path(str(ROOT / "setup.py"))
    finally:
        sys.modules.pop("setuptools")
        if real:
            sys.modules["setuptools"] = real
    return found


def declared(requirements):
    return {re.match(r"[\w-]+", text)[0] for text in requirements}


def imports(path):
    """Packages that a file imports, and ``(package, extra)`` of its optional ones."""
    plain, optional = set(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            plain |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            plain.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_extra"):
            module, extra = (argument.value for argument in node.args)
            optional.add((package(module), extra))
    plain = {name.split(".")[0] for name in plain} - sys.stdlib_module_names - OWN
    return {package(name) for name in plain}, optional


def package(module):
    root = module.split(".")[0]
    return PACKAGES.get(root, root)


def test_the_wheel_holds_the_library_alone(setup):
    assert setup["packages"] == ["fedjax_skew", "fedjax_skew.*"]
    assert all(name.startswith("fedjax_skew") for name in setup["package_data"])
    assert setup["version"] == fedjax_skew.__version__


def test_the_library_imports_what_setup_requires(setup):
    core, extras = declared(setup["install_requires"]), setup["extras_require"]
    for path in sorted((ROOT / "fedjax_skew").rglob("*.py")):
        plain, optional = imports(path)
        if path.parent.name == "report":  # Entered through report.style, which asks for the extra.
            plain -= declared(extras["report"])
        assert plain <= core, path
        for name, extra in optional:
            assert name in declared(extras[extra]), (path, name, extra)


@pytest.mark.parametrize(
    ("room", "extras"),
    [("experiments", ("all", "bench", "prepare", "ray")), ("configs", ()), ("tests", ("test",))],
)
def test_other_imports_are_declared(setup, room, extras):
    known = declared(setup["install_requires"])
    for extra in extras:
        known |= declared(setup["extras_require"][extra])
    for path in sorted((ROOT / room).rglob("*.py")):
        assert imports(path)[0] - UNDECLARED <= known, path


CORE_ONLY = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import fedjax_skew
"""


def run_without(blocked, code):
    """Runs a program as if some packages were not installed."""
    code = f"BLOCKED = {sorted(blocked)!r}\n{CORE_ONLY}\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def optional(setup):
    """Modules of all extras; flax itself requires orbax."""
    names = {p: m for m, p in PACKAGES.items()}
    found = declared(setup["extras_require"]["all"]) - declared(setup["install_requires"])
    return {names.get(name, name) for name in found} - {"orbax"}


def test_everything_but_run_directories_works_with_the_core_requirements(optional):
    code = """
for name in dir(fedjax_skew):
    getattr(fedjax_skew, name)
config = fedjax_skew.default_config()
config.num_clients, config.rounds, config.participation = 4, 1, 0.5
print(len(fedjax_skew.simulate(config).history))
"""
    assert run_without(optional, code) == "1"


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("fedjax_skew.data.images.decode(b'')", "data"),
        ("fedjax_skew.data.tfds_source.import_tfds()", "data"),
        ("fedjax_skew.methods.fedconcat.cluster_clients(None, 2, 0)", "methods"),
        ("fedjax_skew.report.style.context().__enter__()", "report"),
        ("fedjax_skew.report.lines.tsne(None)", "report"),
        ("fedjax_skew.runs.loggers.TensorBoard('.', {})", "runs"),
    ],
)
def test_a_missing_extra_is_one_sentence(optional, code, extra):
    module = re.match(r"(fedjax_skew(\.[a-z_]+)+)\.", code)[1]
    code = f"""
import {module}
try:
    {code}
except ImportError as error:
    print(error)
"""
    said = run_without(optional, code)
    assert f"pip install 'fedjax_skew[{extra}]'" in said and "\n" not in said


def test_the_library_refers_to_nothing_outside_itself():
    for path in sorted((ROOT / "fedjax_skew").rglob("*.py")):
        text = path.read_text()
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        assert "experiments." not in text and "__file__" not in names, path
