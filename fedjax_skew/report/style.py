"""The common style of all figures, which is colour-blind safe and readable in greyscale.

Series differ in colour (Okabe and Ito's palette without yellow, which is too faint on white), in
marker, in line style and in hatch, so that none of these alone has to distinguish them. Figures are
created without pyplot, and therefore need neither global state nor a display. matplotlib is an
optional dependency and is imported on first use.
"""

import contextlib
import functools
import io
import os
import pathlib
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from fedjax_skew import errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h", "d")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.5, 1.2)))
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++++", "oooo")
# Tol's muted colours and black, for many classes.
CLASS_COLORS = (
    *("#332288", "#CC6677", "#44AA99", "#DDCC77", "#88CCEE", "#882255", "#117733", "#AA4499"),
    *("#999933", "#000000"),
)
SEQUENTIAL = "Blues"  # White at zero and monotone in lightness.
WIDTH = 6.6  # Width of a page's text in inches.
DPI = 200

_RC: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedjax_skew",
    "text.parse_math": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


class Look(NamedTuple):
    """The appearance of a series."""

    color: str
    marker: str
    line: Any
    hatch: str


def look(index: int) -> Look:
    """Returns the look of the ``index``-th series; the first 91 differ in colour or marker."""
    return Look(
        COLORS[index % len(COLORS)],
        MARKERS[index % len(MARKERS)],
        # Series of the same colour have different line styles.
        LINES[(index % len(COLORS) + index // len(COLORS)) % len(LINES)],
        HATCHES[index % len(HATCHES)],
    )


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Returns one look per name, in order of first appearance."""
    return {name: look(index) for index, name in enumerate(dict.fromkeys(names))}


@contextlib.contextmanager
def context() -> Iterator[None]:
    """Applies the project's matplotlib settings to the defaults, ignoring the user's settings."""
    matplotlib = errors.import_extra("matplotlib", "report")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a drawing function to run under ``context``."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with context():
            return function(*args, **kwargs)

    return wrapper


def panels(
    count: int, *, columns: int, height: float, width: float = WIDTH, **subplots: Any
) -> tuple["Figure", list[Any]]:
    """Creates a figure with ``count`` axes in rows of at most ``columns``.

    Args:
        count: number of panels.
        columns: largest number of panels per row.
        height: height of one row in inches.
        width: width of the whole figure in inches.
        **subplots: arguments of ``Figure.subplots``.

    Returns:
        The figure and its axes, row by row.
    """
    from matplotlib.figure import Figure

    if count < 1:
        raise ValueError("panels is empty; at least one is needed for a figure.")
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **subplots).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def legend(figure: "Figure", axes: Sequence[Any], *, columns: int = 5, **options: Any) -> None:
    """Adds one legend above all panels, with every name once, if there are at least two names.

    Args:
        figure: the figure.
        axes: the axes that contain the named artists.
        columns: largest number of names per row, which is reduced if they are long; names are
            distributed evenly over the rows.
        **options: arguments of ``Figure.legend``.
    """
    named: dict[str, Any] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    if len(named) > 1:
        # A letter is about 1/14 inch wide; a handle with its space is as wide as six letters.
        fitting = int(14 * figure.get_figwidth() / (max(map(len, named)) + 6))
        columns = max(min(columns, fitting), 1)
        rows = -(-len(named) // columns)
        figure.legend(
            named.values(),
            named.keys(),
            loc="outside upper center",
            ncols=-(-len(named) // rows),
            **options,
        )


def caption(figure: "Figure", text: str) -> None:
    """Adds a small text below all panels, wrapped to the width of the figure."""
    text = textwrap.fill(text, int(figure.get_figwidth() * 22))
    # The figure is enlarged, so that the panels keep their size.
    figure.set_figheight(figure.get_figheight() + 0.11 * (text.count("\n") + 2))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=6, color="#555555")


def whole_numbers(axis: Any) -> None:
    """Puts the ticks of an ``Axis`` at whole numbers, for example of rounds."""
    from matplotlib import ticker

    locator = ticker.MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
    axis.set_major_locator(locator)


def label_outer(axes: Sequence[Any], ylabel: str) -> None:
    """Labels only the vertical axes of the leftmost panels."""
    for axis in axes:
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel(ylabel)


def over_seeds(values: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns mean and standard deviation over the last axis of ``[X, S]``, or None for ``[X]``."""
    values = np.asarray(values, np.float64)
    if values.ndim == 1:
        return values, None
    return values.mean(1), values.std(1, ddof=1) if values.shape[1] > 1 else None


def save(figure: "Figure", path_stem: str | os.PathLike[str]) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes ``<path_stem>.png`` (200 dpi) and ``<path_stem>.pdf``.

    Neither file contains a date or a program version, so that equal figures give equal bytes.

    Args:
        figure: the figure.
        path_stem: path without a suffix; missing directories are created.

    Returns:
        The paths of the PNG and the PDF.
    """
    stem = pathlib.Path(path_stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, pdf = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.pdf")
    with context():
        figure.savefig(png, dpi=DPI, metadata={"Software": None})
        undated = {"CreationDate": None, "Creator": None, "Producer": None}
        figure.savefig(pdf, metadata=undated)
    return png, pdf


def svg(figure: "Figure", label: str) -> str:
    """Returns the figure as scalable SVG with a transparent background, for an HTML page.

    Text is kept as text and drawn in the reader's font. An artist's ``gid`` becomes its ``id``.
    The ids that matplotlib generates are removed if nothing refers to them, because a page has
    several figures.

    Args:
        figure: the figure.
        label: a description of the figure for screen readers.
    """
    from xml.sax import saxutils

    buffer = io.StringIO()
    with context():
        unnamed = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=unnamed)
    text = buffer.getvalue()
    text = re.sub(r' id="[\w.]+_\d+"', "", text[text.index("<svg") :])
    head = f'<svg role="img" aria-label={saxutils.quoteattr(label)} '
    return head + re.sub(r' (?:width|height)="[\d.]+pt"', "", text.removeprefix("<svg "), count=2)
