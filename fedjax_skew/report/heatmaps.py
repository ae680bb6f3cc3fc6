"""Figures made of coloured matrices: partitions and confusion matrices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_skew.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = Any  # anything numpy can read

_MANY_CLIENTS = 400
_MOST_NUMBERS = 220  # cells that still have room for a number


@style.styled
def partitions(
    class_counts: Mapping[str, Array], *, class_names: Sequence[str] = (), columns: int = 3
) -> "Figure":
    """Samples per class (upwards) and client (sideways), one panel a partition, one colour scale.

    Small partitions show the counts. Of more than 400 clients, 400 are shown, evenly spaced
    after sorting by the most frequent class and its share, so that the picture keeps the
    mixture of single clients, which averaging would hide; the axis says so.

    Args:
        class_counts: ``[K, C]`` by title.
        class_names: names for the classes; ids when left out.
        columns: most panels side by side.
    """
    counts = {title: np.asarray(matrix) for title, matrix in class_counts.items()}
    largest = max(matrix.max(initial=1) for matrix in counts.values())
    tall = max(matrix.shape[1] for matrix in counts.values())
    height = float(np.clip(0.22 * tall + 0.8, 1.8, 3.6))
    width = style.WIDTH if len(counts) > 1 else _single_width(len(next(iter(counts.values()))))
    figure, axes = style.panels(len(counts), columns=columns, height=height, width=width)
    room = _MOST_NUMBERS // min(columns, len(counts))
    for axis, (title, matrix) in zip(axes, counts.items(), strict=True):
        clients = len(matrix)
        shown = matrix[_spread_clients(matrix)] if clients > _MANY_CLIENTS else matrix
        # The square root leaves small counts visible beside large ones.
        image = _draw(axis, shown.T, vmax=largest, gamma=0.5, origin="lower", white_zero=True)
        if shown.size <= room:
            _write(axis, shown.T, largest, "{:d}", gamma=0.5, hide_zero=True)
        axis.set_title(title)
        if clients > _MANY_CLIENTS:
            axis.set_xlabel(f"{_MANY_CLIENTS} of {clients:,} clients, by most frequent class")
            axis.set_xticks([])
        else:
            axis.set_xlabel("client")
            _ticks(axis.xaxis, clients)
        _ticks(axis.yaxis, matrix.shape[1], class_names)
    style.label_outer(axes, "class")
    _colorbar(figure, image, axes, "samples")
    return figure


@style.styled
def confusion(
    counts: Array,
    *,
    title: str = "",
    class_names: Sequence[str] = (),
    roles: Array | None = None,
) -> "Figure":
    """A confusion matrix in percent of the true class.

    Args:
        counts: ``[C, C]``, rows are true classes.
        title: the panel's title.
        class_names: names for the classes; ids when left out.
        roles: masks of majority, minority and vacant classes, bool ``[3, C]`` (one client's
            ``skew.class_roles``); minority and vacant classes are then marked beside the axis.
    """
    counts = np.asarray(counts, np.float64)
    percent = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = len(percent)
    side = float(np.clip(0.34 * size + 1.0, 2.8, 5.2))
    figure, (axis,) = style.panels(1, columns=1, height=side, width=side + 0.7)
    image = _draw(axis, percent, vmax=100.0)
    if size * size <= 2 * _MOST_NUMBERS:
        _write(axis, percent, 100.0, "{:.0f}", hide_zero=True)
    axis.set(title=title, xlabel="predicted class", ylabel="true class")
    names = [str(name) for name in class_names] or [str(c) for c in range(size)]
    if roles is not None:
        _, minority, vacant = np.asarray(roles, bool)
        marks = np.where(vacant, " (vacant)", np.where(minority, " (minority)", ""))
        _ticks(axis.yaxis, size, [name + mark for name, mark in zip(names, marks, strict=True)])
    else:
        _ticks(axis.yaxis, size, names)
    _ticks(axis.xaxis, size, names)
    if max(map(len, names)) > 3:
        axis.tick_params(axis="x", labelrotation=90)
    _colorbar(figure, image, axis, "% of the true class")
    return figure


def _single_width(clients: int) -> float:
    return float(np.clip(0.42 * clients + 1.6, 3.4, style.WIDTH))


def _spread_clients(counts: np.ndarray) -> np.ndarray:
    """Evenly spaced clients in the order of most frequent class, then of its share."""
    share = counts.max(1) / np.maximum(counts.sum(1), 1)
    order = np.lexsort((-share, counts.argmax(1)))
    return order[np.linspace(0, len(order) - 1, _MANY_CLIENTS).astype(int)]


def _draw(
    axis: Any,
    matrix: np.ndarray,
    *,
    vmax: float,
    vmin: float = 0.0,
    gamma: float = 1.0,
    origin: str = "upper",
    white_zero: bool = False,
) -> Any:
    """Draws a matrix; with ``white_zero`` even a count of 1 differs from none."""
    import matplotlib
    from matplotlib import colors

    colormap = matplotlib.colormaps[style.SEQUENTIAL]
    if white_zero:
        matrix = np.ma.masked_equal(matrix, 0)
        colormap = colors.ListedColormap(colormap(np.linspace(0.12, 1, 256)))
    axis.grid(False)
    for spine in axis.spines.values():
        spine.set_visible(True)
    norm = colors.PowerNorm(gamma, vmin=vmin, vmax=max(vmax, vmin + 1e-9))
    return axis.imshow(
        matrix, cmap=colormap, norm=norm, aspect="auto", origin=origin, interpolation="none"
    )


def _colorbar(figure: "Figure", image: Any, axes: Any, label: str) -> None:
    from matplotlib import ticker

    # More ticks would run into each other where the square root squeezes large counts.
    locator = ticker.MaxNLocator(5)
    figure.colorbar(image, ax=axes, label=label, ticks=locator, shrink=0.9, pad=0.02)


def _write(
    axis: Any,
    matrix: np.ndarray,
    high: float,
    form: str,
    *,
    low: float = 0.0,
    gamma: float = 1.0,
    hide_zero: bool = False,
) -> None:
    """Writes the numbers, white on dark cells."""
    for (y, x), value in np.ndenumerate(matrix):
        text = form.format(value)
        if np.isnan(value) or (hide_zero and text == "0"):
            continue
        depth = (max(value - low, 0) / max(high - low, 1e-9)) ** gamma
        color = "white" if depth > 0.55 else "#222222"
        axis.text(x, y, text, ha="center", va="center", color=color, fontsize=6)


def _ticks(axis: Any, count: int, names: Sequence[str] = ()) -> None:
    """A tick for every entry, or for every fifth, tenth... when there are many."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 1000, count) if count / s <= 20)
    positions = np.arange(0, count, step)
    axis.set_ticks(positions, [str(names[int(i)]) if len(names) else str(i) for i in positions])
