"""Figures of lines and points. Accuracies are in percent, as in the tables.

Every function takes plain arrays and returns a matplotlib ``Figure``; ``style.save`` writes it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_skew.errors import import_extra
from fedjax_skew.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = Any  # Anything that numpy can convert to an array.


@style.styled
def curves(
    panels: Mapping[str, Mapping[str, tuple[Array, Array]]],
    *,
    xlabel: str | Sequence[str] = "round",
    ylabel: str = "test accuracy (%)",
    columns: int = 2,
    width: float | None = None,
    legend: bool = True,
    looks: Mapping[str, style.Look] | None = None,
) -> "Figure":
    """Draws curves as the mean over seeds with a band of one standard deviation.

    A name has the same look in all panels. There is no band for a single seed. In an SVG, the
    ``id`` of a line is its name, and that of its band is the name followed by ``-band``.

    Args:
        panels: by panel title and by name, ``(x [T], values [T] or [S, T])``; if ``x`` are
            integers, so are the ticks.
        xlabel: label of the horizontal axes, or one label per panel.
        ylabel: label of the vertical axes.
        columns: largest number of panels per row.
        width: width of the figure in inches; depends on the number of panels by default.
        legend: whether to draw a legend above the panels.
        looks: looks by name, for curves that look the same in several figures.
    """
    looks = looks or style.looks(name for series in panels.values() for name in series)
    single = len(panels) == 1
    width = width or (5.0 if single else style.WIDTH)
    figure, axes = style.panels(
        len(panels), columns=columns, height=2.9 if single else 2.3, width=width
    )
    xlabels = [xlabel] * len(panels) if isinstance(xlabel, str) else xlabel
    for axis, words, (title, series) in zip(axes, xlabels, panels.items(), strict=True):
        whole = True
        for order, (name, (x, values)) in enumerate(series.items()):
            x, values = np.asarray(x), np.atleast_2d(np.asarray(values, np.float64))
            whole = whole and np.issubdtype(x.dtype, np.integer)
            mean = values.mean(0)
            every = max(len(x) // 8, 1)
            # Markers are staggered, so that those of close curves do not hide each other.
            marked = (order * every // max(len(series), 1), every)
            axis.plot(x, mean, label=name, gid=name, markevery=marked, **_look(looks[name]))
            if len(values) > 1:
                std = values.std(0, ddof=1)
                band = axis.fill_between(
                    x, mean - std, mean + std, color=looks[name].color, alpha=0.15, linewidth=0
                )
                band.set_gid(f"{name}-band")
        axis.set(title=title, xlabel=words)
        axis.margins(x=0.01)
        if whole:
            style.whole_numbers(axis.xaxis)
    style.label_outer(axes, ylabel)
    if legend:
        style.legend(figure, axes)
    return figure


@style.styled
def swatch(look: style.Look) -> "Figure":
    """Draws a short piece of a curve, for a legend outside of its figure."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(0.42, 0.12))
    figure.add_artist(Line2D([0.02, 0.5, 0.98], [0.5] * 3, markevery=[1], **_look(look)))
    return figure


@style.styled
def sensitivity(
    panels: Mapping[str, Mapping[str, tuple[Array, Array]]],
    *,
    ylabel: str = "test accuracy (%)",
    columns: int = 2,
    log: bool = False,
    joined: bool = True,
) -> "Figure":
    """Draws accuracy over a hyper-parameter, with error bars over seeds, on one vertical scale.

    Args:
        panels: by hyper-parameter and by series, ``(its values [X], accuracy [X] or [X, S])``.
        ylabel: label of the vertical axes.
        columns: largest number of panels per row.
        log: whether the horizontal axes are logarithmic.
        joined: whether lines connect the points.
    """
    looks = style.looks(name for series in panels.values() for name in series)
    width = 3.6 if len(panels) == 1 else style.WIDTH
    figure, axes = style.panels(len(panels), columns=columns, height=2.3, width=width, sharey=True)
    for axis, (name, series) in zip(axes, panels.items(), strict=True):
        for label, (x, values) in series.items():
            mean, std = style.over_seeds(values)
            how = _look(looks[label]) | ({} if joined else {"linestyle": "none"})
            axis.errorbar(x, mean, std, label=label, capsize=2, elinewidth=0.8, **how)
        if log:
            axis.set_xscale("log")
        ticks = sorted({float(value) for x, _ in series.values() for value in np.asarray(x)})
        if len(ticks) <= 8:
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
        axis.set_xlabel(name)
    style.label_outer(axes, ylabel)
    style.legend(figure, axes)
    return figure


@style.styled
def scatter(
    panels: Mapping[str, tuple[Array, Array]],
    *,
    class_names: Mapping[int, str] | Sequence[str] = (),
    columns: int = 2,
    label: str = "",
) -> "Figure":
    """Draws points of the plane by class, for example a t-SNE of features.

    Args:
        panels: by title, ``(points [N, 2], labels [N])``; classes have the same look in all panels.
        class_names: names of the classes; their indices by default.
        columns: largest number of panels per row.
        label: title of the legend.
    """
    classes = sorted({int(label) for _, labels in panels.values() for label in np.asarray(labels)})
    figure, axes = style.panels(len(panels), columns=columns, height=3.0)
    for axis, (title, (points, labels)) in zip(axes, panels.items(), strict=True):
        points, labels = np.asarray(points), np.asarray(labels)
        for index, number in enumerate(classes):
            color = style.CLASS_COLORS[index % len(style.CLASS_COLORS)]
            marker = style.MARKERS[index % len(style.MARKERS)]
            mine = points[labels == number]
            axis.scatter(
                mine[:, 0],
                mine[:, 1],
                s=14,
                color=color,
                marker=marker,
                linewidths=0.2,
                edgecolors="white",
                label=str(class_names[number]) if len(class_names) else str(number),
            )
        axis.set(title=title, xticks=[], yticks=[])
        axis.grid(False)
        for spine in axis.spines.values():
            spine.set_visible(True)
    style.legend(figure, axes, columns=10, markerscale=1.6, handletextpad=0.1, title=label)
    return figure


def tsne(features: Array, *, seed: int = 0, perplexity: float = 30.0) -> np.ndarray:
    """Computes the t-SNE of features with scikit-learn, initialised by principal components.

    Args:
        features: ``[N, D]``.
        seed: random seed.
        perplexity: the perplexity, which is reduced if there are too few points.

    Returns:
        Points ``[N, 2]``.
    """
    threadpoolctl = import_extra("threadpoolctl", "report")
    manifold = import_extra("sklearn.manifold", "report")

    features = np.asarray(features, np.float32)
    perplexity = min(perplexity, max((len(features) - 1) / 3, 1.0))
    model = manifold.TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
    # With few points, threads mostly wait for each other, for seconds on a busy machine.
    with threadpoolctl.threadpool_limits(1 if len(features) <= 2000 else None):
        return model.fit_transform(features)


def _look(look: style.Look) -> dict[str, Any]:
    return {
        "color": look.color,
        "linestyle": look.line,
        "marker": look.marker,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }
