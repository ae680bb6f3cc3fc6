"""Figures of coloured matrices: partitions, confusion matrices and grids of results."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_skew.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = Any  # Anything that numpy can convert to an array.

_MANY_CLIENTS = 400
_MOST_NUMBERS = 1200  # Largest number of cells of a matrix with numbers.
_LETTER = 0.055  # Width in inches of a digit in a cell.


@style.styled
def partitions(
    class_counts: Mapping[str, Array], *, columns: int = 3, width: float = style.WIDTH
) -> "Figure":
    """Draws samples per class (rows) and client (columns), with one panel per partition.

    All panels have the same colour scale, and counts are written into the cells if they fit. If
    there are more than 400 clients, 400 of them are shown, evenly spaced after sorting by the most
    frequent class and its share, and the axis says so. Averaging would hide the mixture of single
    clients.

    Args:
        class_counts: ``[K, C]`` by title.
        columns: largest number of panels per row.
        width: largest width of the figure in inches.
    """
    counts = {title: np.asarray(matrix) for title, matrix in class_counts.items()}
    largest = max(matrix.max(initial=1) for matrix in counts.values())
    tall = max(matrix.shape[1] for matrix in counts.values())
    if len(counts) == 1:
        width = float(np.clip(0.42 * len(next(iter(counts.values()))) + 1.6, 3.4, width))
    figure, axes = style.panels(
        len(counts), columns=columns, height=_height(tall, 3.6), width=width
    )
    inches = (width - 0.6) / min(columns, len(counts)) - 0.4
    for axis, (title, matrix) in zip(axes, counts.items(), strict=True):
        clients = len(matrix)
        shown = matrix[_spread_clients(matrix)] if clients > _MANY_CLIENTS else matrix
        # The square root keeps small counts visible next to large ones.
        image = _draw(axis, np.ma.masked_equal(shown.T, 0), (0, largest), "{:d}", inches, gamma=0.5)
        axis.invert_yaxis()
        axis.set_title(title)
        if clients > _MANY_CLIENTS:
            axis.set_xlabel(f"{_MANY_CLIENTS} of {clients:,} clients, by most frequent class")
            axis.set_xticks([])
        else:
            axis.set_xlabel("client")
            _ticks(axis.xaxis, clients)
        _ticks(axis.yaxis, matrix.shape[1])
    style.label_outer(axes, "class")
    _colorbar(figure, image, axes, "samples")
    return figure


def confusion(counts: Array, *, title: str = "", roles: Array | None = None) -> "Figure":
    """Draws a confusion matrix in percent of the true class.

    Args:
        counts: ``[C, C]``, whose rows are true classes.
        title: the figure's title.
        roles: masks of majority, minority and vacant classes, bool ``[3, C]``, as returned by
            ``skew.class_roles`` for one client; minority and vacant classes are marked on the axis.
    """
    counts = np.asarray(counts, np.float64)
    names = [str(c) for c in range(len(counts))]
    marks = np.full(len(counts), "")
    if roles is not None:
        _, minority, vacant = np.asarray(roles, bool)
        marks = np.where(vacant, " (vacant)", np.where(minority, " (minority)", ""))
    percent = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return grid(
        np.ma.masked_less(percent, 0.5),
        title=title,
        xlabel="predicted class",
        ylabel="true class",
        label="% of the true class",
        x_names=names,
        y_names=[name + mark for name, mark in zip(names, marks, strict=True)],
        width=float(np.clip(0.34 * len(counts) + 1.7, 3.5, 5.9)),
    )


@style.styled
def grid(
    values: Array,
    *,
    xlabel: str,
    ylabel: str,
    label: str,
    x_names: Sequence[str],
    y_names: Sequence[str],
    limits: tuple[float, float] = (0.0, 100.0),
    decimals: int = 0,
    title: str = "",
    width: float = style.WIDTH,
    framed: Array = (),
) -> "Figure":
    """Draws a grid with one number per cell, for example accuracies by class and run.

    Args:
        values: ``[Y, X]``, with the first row at the top; cells with nan are empty.
        xlabel: name of the second index.
        ylabel: name of the first index.
        label: label of the colour bar.
        x_names: names along the second index ``[X]``.
        y_names: names along the first index ``[Y]``.
        limits: the numbers at the two ends of the colour scale.
        decimals: number of decimals of the numbers, which are written into cells if they fit.
        title: the figure's title.
        width: width of the figure in inches.
        framed: ``(row, column)`` of cells that are framed.
    """
    values = np.ma.masked_invalid(values)
    names = max(map(len, y_names), default=0)
    figure, (axis,) = style.panels(1, columns=1, height=_height(len(values), 9.0), width=width)
    inches = width - 1.2 - 0.065 * names
    image = _draw(axis, values, limits, f"{{:.{decimals}f}}", inches)
    for row, column in framed:
        _frame(axis, row, column)
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    _ticks(axis.xaxis, values.shape[1], x_names)
    _ticks(axis.yaxis, len(values), y_names, most=60)
    letters = max(map(len, x_names), default=0)
    if letters * 0.09 > inches / min(values.shape[1], 20):
        axis.tick_params(axis="x", labelrotation=90)
    _colorbar(figure, image, axis, label)
    return figure


def _height(rows: int, most: float) -> float:
    return float(np.clip(0.22 * rows + 0.9, 1.8, most))


def _spread_clients(counts: np.ndarray) -> np.ndarray:
    """Returns evenly spaced clients, sorted by most frequent class and its share."""
    share = counts.max(1) / np.maximum(counts.sum(1), 1)
    order = np.lexsort((-share, counts.argmax(1)))
    return order[np.linspace(0, len(order) - 1, _MANY_CLIENTS).astype(int)]


def _draw(
    axis: Any,
    matrix: np.ma.MaskedArray,
    limits: tuple[float, float],
    form: str,
    inches: float,
    *,
    gamma: float = 1.0,
) -> Any:
    """Draws a matrix and, if they fit, its numbers; masked cells are empty.

    Args:
        axis: the axes.
        matrix: ``[Y, X]``.
        limits: the numbers at the two ends of the colour scale.
        form: format of a number.
        inches: width of the axes in inches.
        gamma: exponent of the colour scale.
    """
    import matplotlib
    from matplotlib import colors

    # The scale starts above white, so that a count of 1 differs from an empty cell.
    shades = matplotlib.colormaps[style.SEQUENTIAL](np.linspace(0.12, 1, 256))
    axis.grid(False)
    for spine in axis.spines.values():
        spine.set_visible(True)
    low, high = limits
    image = axis.imshow(
        matrix,
        cmap=colors.ListedColormap(shades),
        norm=colors.PowerNorm(gamma, vmin=low, vmax=max(high, low + 1e-9)),
        aspect="auto",
        interpolation="none",
    )
    known = [(x, y, matrix[y, x]) for y, x in np.argwhere(~np.ma.getmaskarray(matrix))]
    letters = max((len(form.format(value)) for _, _, value in known), default=0)
    if matrix.size <= _MOST_NUMBERS and inches / matrix.shape[1] >= _LETTER * letters:
        for x, y, value in known:
            color = "white" if image.norm(value) > 0.55 else "#222222"
            axis.text(x, y, form.format(value), ha="center", va="center", color=color, fontsize=6)
    return image


def _frame(axis: Any, row: int, column: int) -> None:
    """Draws a frame inside of a cell that is visible on light and on dark colours."""
    from matplotlib.patches import Rectangle

    for color, line in (("white", 2.6), ("black", 1.2)):
        axis.add_patch(
            Rectangle(
                (column - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor=color, linewidth=line
            )
        )


def _colorbar(figure: "Figure", image: Any, axes: Any, label: str) -> None:
    from matplotlib import ticker

    # More ticks would overlap where the square root compresses large counts.
    locator = ticker.MaxNLocator(5)
    figure.colorbar(image, ax=axes, label=label, ticks=locator, shrink=0.9, pad=0.02)


def _ticks(axis: Any, count: int, names: Sequence[str] = (), most: int = 20) -> None:
    """Sets a tick for every entry, or for every second, fifth, tenth... if there are many."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 1000, count) if count / s <= most)
    positions = range(0, count, step)
    axis.set_ticks(positions, [str(names[i]) if len(names) else str(i) for i in positions])
