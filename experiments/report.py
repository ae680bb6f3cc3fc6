"""Writes a self-contained HTML page about a set of runs.

    python -m experiments.report --workdir=runs --output=report.html

The page shows every run below the directory, including those that are running, stopped or failed.
"""

import pathlib
from collections.abc import Sequence

from absl import flags

from experiments import app
from fedjax_skew.report import page
from fedjax_skew.runs import rundir, store

_WORKDIR = flags.DEFINE_string("workdir", None, "Directory to search for runs.")
_OUTPUT = flags.DEFINE_string("output", None, "Path of the page; default <workdir>/report.html.")
_TITLE = flags.DEFINE_string("title", None, "Heading; default is the directory's name.")


def main(argv: Sequence[str]) -> None:
    """Reads the runs and writes the page."""
    if not _WORKDIR.value:
        raise ValueError("workdir is not set; choose the directory of the runs with --workdir=DIR.")
    workdir = pathlib.Path(_WORKDIR.value)
    records = store.find(workdir)
    output = pathlib.Path(_OUTPUT.value or workdir / "report.html")
    output.parent.mkdir(parents=True, exist_ok=True)
    rundir.write_text(output, page.page(records, _TITLE.value or workdir.resolve().name))
    print(f"{len(records)} runs in {output} ({output.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    app.run(main)
