"""The documentation: notebooks run, the reference is complete, and links point to files."""

import pathlib
import re
import subprocess
import sys

import pytest

import fedjax_skew

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *DOCS.glob("*.md"),
    *DOCS.glob("guides/*.md"),
    *DOCS.glob("notebooks/*.md"),
]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_cells_of_a_notebook_run(notebook, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(tmp_path)
    # Displayed objects need no notebook to display them.
    monkeypatch.setitem(sys.modules, "IPython.display", _Display())
    space: dict = {"__name__": notebook.stem}
    for code in re.findall(r"```\{code-cell\}\n(.*?)```", notebook.read_text(), re.S):
        exec(compile(code, str(notebook), "exec"), space)


class _Display:
    Markdown = str

    @staticmethod
    def Image(path, width):
        return path


def test_there_are_four_notebooks():
    assert len(NOTEBOOKS) == 4


def test_the_reference_has_every_public_name():
    text = "".join(path.read_text() for path in (DOCS / "api").glob("*.rst"))
    missing = [name for name in dir(fedjax_skew) if f"fedjax_skew.{name}" not in text]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_point_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_the_documentation_builds_without_warnings(tmp_path):
    pytest.importorskip("myst_nb")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-c",
        "docs",
        ".",
        tmp_path,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "docs" / "index.html").exists()
