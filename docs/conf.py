"""Builds the documentation: ``python -m sphinx -W --keep-going -c docs . docs/_build``.

The source directory is the whole repository, so that the pages of papers and results stay next to
their data, and links also work in a checkout.
"""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT)  # For the kernels that execute the notebooks.

import fedjax_skew  # noqa: E402
from fedjax_skew import methods  # noqa: E402

project = "fedjax_skew"
author = copyright = "The fedjax_skew authors"
release = fedjax_skew.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/api/**.rst",
    "docs/guides/*.md",
    "docs/notebooks/*.md",
    "configs/*.md",
    "experiments/results/*.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "build", "docs/_build", "fedjax_skew", "runs", "tests"]
suppress_warnings = ["myst.header"]  # A page of measured results may start with a subsection.

html_theme = "furo"
html_title = f"fedjax_skew {release}"
html_extra_path = ["_root"]  # Sends visitors of the site's root to the start page.

autodoc_typehints = "none"  # The docstrings describe the arguments.
autodoc_member_order = "bysource"
napoleon_use_ivar = True
napoleon_use_rtype = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_render_markdown_format = "myst"


def write_method_pages(folder: pathlib.Path) -> None:
    """Writes one page per module of the registry, and a table of all methods."""
    folder.mkdir(exist_ok=True)
    rows, pages = [], {}
    for name, text in methods.names().items():
        module = methods.REGISTRY[name].module or name
        pages.setdefault(module, []).append(methods.label(name))
        rows.append(
            f"   * - ``{name}``\n     - :doc:`{methods.label(name)} <{module}>`\n     - {text}\n"
        )
    for module, labels in pages.items():
        title = ", ".join(labels)
        rule = "=" * len(title)
        body = f".. automodule:: fedjax_skew.methods.{module}\n   :members:\n"
        (folder / f"{module}.rst").write_text(f"{title}\n{rule}\n\n{body}")
    (folder / "all_methods.rst").write_text(
        "All methods\n===========\n\n.. list-table::\n   :header-rows: 1\n\n"
        "   * - name\n     - method\n     - description\n"
        + "".join(rows)
        + "\n.. toctree::\n   :hidden:\n\n"
        + "".join(f"   {module}\n" for module in pages)
    )


write_method_pages(ROOT / "docs" / "api" / "generated")
