"""Figures of bars. Accuracies are in percent, as in the tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedjax_skew.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = Any  # Anything that numpy can convert to an array.

_GROUND = "#e8e8e8"  # Background of classes without training samples.
_LETTERS = 14  # Letters of a tick label per inch.


class ClassBars(NamedTuple):
    """A panel of ``class_bars``.

    Attributes:
        title: the panel's title.
        bars: accuracy per class ``[C]`` by name, for example before and after the local update.
        class_counts: training samples per class ``[C]``, drawn on a second axis, or None.
    """

    title: str
    bars: Mapping[str, Array]
    class_counts: Array | None = None


@style.styled
def class_bars(
    panels: Sequence[ClassBars],
    *,
    ylabel: str = "accuracy (%)",
    columns: int = 2,
) -> "Figure":
    """Draws accuracy per class as bars, with the class's training samples on a second axis.

    Classes without training samples have a grey background.

    Args:
        panels: one panel per client or method.
        ylabel: label of the left axes.
        columns: largest number of panels per row.
    """
    looks = style.looks(name for panel in panels for name in panel.bars)
    figure, axes = style.panels(len(panels), columns=columns, height=2.3)
    inches = style.WIDTH / min(columns, len(panels))
    twins = []
    for axis, panel in zip(axes, panels, strict=True):
        num_classes = len(np.asarray(next(iter(panel.bars.values()))))
        _bars(axis, panel.bars, looks, num_classes)
        axis.set(title=panel.title, xlabel="class", ylim=(0, 100))
        _name_groups(axis, range(num_classes), inches - 1.2)
        if panel.class_counts is not None:
            twins.append(_counts(axis, np.asarray(panel.class_counts)))
            if axis is axes[-1] or axis.get_subplotspec().is_last_col():
                twins[-1].set_ylabel("training samples")
    style.label_outer(axes, ylabel)
    style.legend(figure, [*axes, *twins])
    return figure


@style.styled
def grouped_bars(
    groups: Sequence[str],
    series: Mapping[str, Array],
    *,
    xlabel: str = "",
    ylabel: str = "test accuracy (%)",
) -> "Figure":
    """Draws bars by group, for example accuracy by skew, with standard deviations over seeds.

    Args:
        groups: names of the groups ``[G]``.
        series: values by name, ``[G]`` or ``[G, S]`` with seeds.
        xlabel: label of the horizontal axis.
        ylabel: label of the vertical axis.
    """
    for_bars = 0.22 * len(groups) * (len(series) + 1) + 1.2
    for_names = _space(groups) / _LETTERS + 0.7
    width = float(np.clip(max(for_bars, for_names), 3.2, style.WIDTH))
    figure, (axis,) = style.panels(1, columns=1, height=2.7, width=width)
    _bars(axis, series, style.looks(series), len(groups))
    axis.set(xlabel=xlabel, ylabel=ylabel)
    _name_groups(axis, groups, width - 0.6)
    style.legend(figure, [axis], columns=max(int(width / 1.2), 1))
    return figure


@style.styled
def bar_panels(panels: Mapping[str, Mapping[str, Array]]) -> "Figure":
    """Draws bars with one panel per quantity and with standard deviations over seeds.

    A name has the same look in all panels.

    Args:
        panels: by label of the vertical axis and by name, one value per seed ``[S]``.
    """
    looks = style.looks(name for values in panels.values() for name in values)
    figure, axes = style.panels(len(panels), columns=3, height=2.4)
    inches = style.WIDTH / min(3, len(panels)) - 0.6
    for axis, (ylabel, values) in zip(axes, panels.items(), strict=True):
        for place, (name, seeds) in enumerate(values.items()):
            mean, std = style.over_seeds(np.atleast_2d(np.asarray(seeds, np.float64)))
            axis.bar(place, mean, 0.7, yerr=std, **_look(looks[name]))
        axis.grid(axis="x", visible=False)
        axis.set_ylabel(ylabel)
        _name_groups(axis, list(values), inches)
    return figure


@style.styled
def histogram(
    series: Mapping[str, Array],
    *,
    xlabel: str,
    ylabel: str,
    marks: Mapping[str, float],
    looks: Mapping[str, style.Look],
    width: float,
) -> "Figure":
    """Draws histograms of percentages as outlines that may overlap.

    Up to three outlines are filled. In an SVG, the ``id`` of an outline is its name, and those of
    its area and its mark are the name followed by ``-band`` and ``-mark``.

    Args:
        series: by name, numbers from 0 to 100 of any shape; nan is ignored.
        xlabel: label of the horizontal axis.
        ylabel: label of the vertical axis.
        marks: by name, a position on the horizontal axis.
        looks: looks by name.
        width: width of the figure in inches.
    """
    known = {name: np.ravel(values)[~np.isnan(np.ravel(values))] for name, values in series.items()}
    wide = max(map(len, known.values())) < 100  # Wider intervals for few numbers.
    edges = np.linspace(0, 100, 11 if wide else 21)
    figure, (axis,) = style.panels(1, columns=1, height=2.9, width=width)
    for name, values in known.items():
        shares = 100 * np.histogram(values, edges)[0] / max(len(values), 1)
        look = looks[name]
        if len(known) <= 3:
            axis.stairs(shares, edges, fill=True, color=look.color, alpha=0.1, gid=f"{name}-band")
        axis.stairs(shares, edges, color=look.color, linestyle=look.line, linewidth=1.4, gid=name)
        if name in marks:
            axis.plot(
                *([marks[name]], [0]),
                color=look.color,
                marker=look.marker,
                markersize=6,
                markeredgecolor="white",
                clip_on=False,
                zorder=5,
                gid=f"{name}-mark",
            )
    axis.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, 100))
    axis.set_ylim(bottom=0)
    return figure


def _counts(axis: Any, counts: np.ndarray) -> Any:
    """Adds the samples per class on a second axis, and a grey background for vacant classes."""
    vacant = np.flatnonzero(counts == 0)
    for place in vacant:
        axis.axvspan(place - 0.5, place + 0.5, color=_GROUND, zorder=0, linewidth=0)
    twin = axis.twinx()
    twin.grid(False)
    twin.spines["right"].set_visible(True)
    present = np.flatnonzero(counts)
    twin.plot(
        present,
        counts[present],
        color="black",
        marker="D",
        markersize=4 if len(counts) <= 20 else 2.5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        linestyle="none",
        label="training samples",
    )
    if vacant.size:
        twin.fill([], [], color=_GROUND, label="no training samples")
    twin.set_ylim(0, max(counts.max(initial=0) * 1.08, 1))
    return twin


def _bars(
    axis: Any, series: Mapping[str, Array], looks: Mapping[str, style.Look], groups: int
) -> None:
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        mean, std = style.over_seeds(values)
        if len(mean) != groups:
            raise ValueError(f"series {name!r} has {len(mean)} values; {groups} are needed.")
        axis.bar(
            np.arange(groups) + (index - (len(series) - 1) / 2) * width,
            mean,
            width,
            yerr=std,
            label=name,
            **_look(looks[name]),
        )
    axis.grid(axis="x", visible=False)
    axis.set_xlim(-0.6, groups - 0.4)


def _look(look: style.Look) -> dict[str, Any]:
    return {
        "color": look.color,
        "hatch": look.hatch,
        "edgecolor": "white",
        "linewidth": 0.4,
        "error_kw": {"elinewidth": 0.8, "capsize": 1.5},
    }


def _name_groups(axis: Any, names: Sequence[Any], inches: float) -> None:
    """Writes the names below the groups, rotated if they would overlap."""
    step = -(-len(names) // 20)
    words = [str(name) for name in names[::step]]
    axis.set_xticks(range(0, len(names), step), words)
    if _space(words) > _LETTERS * inches:
        axis.tick_params(axis="x", labelrotation=35)
        for label in axis.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def _space(words: Sequence[str]) -> float:
    """Returns the width in letters of words that are written side by side at equal distances."""
    return (max(map(len, words)) + 1.5) * len(words)
