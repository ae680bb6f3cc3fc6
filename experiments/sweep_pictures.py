"""Draws a sweep: accuracy by method and field, and curves over rounds and megabytes."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.grid import say
from experiments.sweep_results import Result, Sweep
from fedjax_skew.data import spec
from fedjax_skew.report import bars, heatmaps, lines, names, style, training_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOG_RATIO = 10  # Smallest ratio of the values of a field for a logarithmic axis.
_MOST_CURVES = 12


class Scale(NamedTuple):
    """How the values of a field are drawn.

    Attributes:
        label: the label of the axis.
        shown: the number or text that is drawn for each value.
    """

    label: str
    shown: Mapping[Any, Any]

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(isinstance(value, int | float) for value in self.shown.values())

    @property
    def log(self) -> bool:
        """Whether the values should have a logarithmic axis."""
        values = self.shown.values()
        return min(values) > 0 and max(values) >= _LOG_RATIO * min(values)


def write(sweep: Sweep, workdir: pathlib.Path) -> list[pathlib.Path]:
    """Writes all pictures and returns their paths."""
    return [p for name, figure in draw(sweep).items() for p in style.save(figure, workdir / name)]


def draw(sweep: Sweep) -> dict[str, "Figure"]:
    """Returns the pictures by name.

    ``sweep`` shows bars for methods, lines for one field, a heat map for two fields or points for
    more. ``sweep_curves`` shows accuracy over rounds and against megabytes, for the selected point
    of every method or, if there are few, for all points of a single method.
    """
    done = [r for r in sweep.results if r.finished]
    if not done:
        return {}
    found = _accuracies(sweep, done)
    curves = training_curves.draw({name: r.records for name, r in _compared(sweep, done).items()})
    return found | ({"sweep_curves": curves} if curves else {})


def scale(field: str, values: Sequence[Any]) -> Scale:
    """Returns how the values of a field are drawn.

    Values that differ in one argument, such as ``dirichlet(beta=0.1)`` and ``dirichlet(beta=1)``,
    are drawn by that argument.
    """
    label = field
    if field.startswith("hparams."):
        _, method, name = field.split(".", 2)
        label = f"{name} of {names.method(method)}"
    plain = Scale(label, {v: names.method(v) if field == "method" else v for v in values})
    if not all(isinstance(value, str) for value in values):
        return plain
    try:
        calls = [spec.parse(value, field) for value in values]
    except ValueError:  # Other text, such as a path.
        return plain
    arguments = [dict(call.keyed) for call in calls]
    if len(calls) < 2 or len({(c.name, c.positional, tuple(dict(c.keyed))) for c in calls}) > 1:
        return plain
    differing = [key for key in arguments[0] if len({own[key] for own in arguments}) > 1]
    if len(differing) != 1:
        return plain
    (key,) = differing
    rest = [f"{name}={value}" for name, value in calls[0].keyed if name != key]
    words = [*calls[0].positional, *rest]
    label = f"{key} of {calls[0].name}" + (f"({', '.join(words)})" if words else "")
    texts = [own[key] for own in arguments]
    try:
        shown: list[Any] = [float(text) for text in texts]
    except ValueError:
        shown = texts
    return Scale(label, dict(zip(values, shown, strict=True)))


def _accuracies(sweep: Sweep, done: Sequence[Result]) -> dict[str, "Figure"]:
    fields = [field for field in sweep.fields if field != "method"]
    methods = list(dict.fromkeys(r.point["method"] for r in done))
    ylabel = f"test accuracy (%)\n{names.reported_briefly(sweep.reported)}"
    if not fields:
        labels = [names.method(m) for m in methods]
        return {"sweep": bars.grouped_bars(labels, {"": _stack(sweep, done)}, ylabel=ylabel)}
    scales = {
        field: scale(field, list(dict.fromkeys(r.point[field] for r in done if field in r.point)))
        for field in fields
    }
    numeric = all(own.numeric for own in scales.values())
    if numeric and (len(fields) == 1 or sweep.scattered or len(fields) > 2):
        panels = {own.label: _series(sweep, done, f, own) for f, own in scales.items()}
        joined = len(fields) == 1 and not sweep.scattered
        log = all(own.log for own in scales.values())
        return {"sweep": lines.sensitivity(panels, ylabel=ylabel, log=log, joined=joined)}
    if len(fields) > 2 or sweep.scattered:
        return {}
    if len(fields) == 1:
        rows = scale("method", methods)
        return {"sweep": _heat_map(sweep, done, {"method": rows, **scales}, ylabel)}
    found = {}
    for method in methods:
        own = [r for r in done if r.point["method"] == method]
        if all(field in own[0].point for field in fields):
            name = "sweep" if len(methods) == 1 else f"sweep_{method}"
            found[name] = _heat_map(sweep, own, scales, ylabel)
    return found


def _compared(sweep: Sweep, done: Sequence[Result]) -> dict[str, Result]:
    """Returns the points whose curves are drawn, by the labels that distinguish them."""
    chosen = sweep.selected()
    if len(chosen) == 1 and len(done) <= _MOST_CURVES:
        chosen = list(done)
    found = {}
    for result in chosen:
        fields = [field for field in sweep.fields if field in result.point and field != "method"]
        values = [_named(field, result.point[field]) for field in fields]
        method = [names.method(result.point["method"])] if "method" in sweep.fields else []
        found[", ".join(method + values)] = result
    return found if len(found) > 1 else {}


def _named(field: str, value: Any) -> str:
    """Formats a value as ``"tau=0.1"``; ``"dirichlet(beta=0.1)"`` needs no field name."""
    return say(value) if "(" in say(value) else f"{field.split('.')[-1]}={say(value)}"


def _series(
    sweep: Sweep, results: Sequence[Result], field: str, own_scale: Scale
) -> dict[str, tuple[Any, Any]]:
    """Returns values of a field and accuracies by method; a method without it is constant."""
    everywhere = sorted(own_scale.shown.values())
    found = {}
    for method in dict.fromkeys(r.point["method"] for r in results):
        own = [r for r in results if r.point["method"] == method]
        if field in own[0].point:
            own.sort(key=lambda r: own_scale.shown[r.point[field]])
            x = [own_scale.shown[r.point[field]] for r in own]
        elif len(own) == 1:
            x, own = everywhere, own * len(everywhere)
        else:
            continue
        found[names.method(method)] = (x, _stack(sweep, own))
    return found


def _heat_map(
    sweep: Sweep, results: Sequence[Result], scales: Mapping[str, Scale], label: str
) -> "Figure":
    """Draws mean accuracies by two fields, the first in rows; selected points are framed.

    A point without one of the fields is drawn for all values of that field.
    """
    rows, columns = scales.values()
    values = np.full((len(rows.shown), len(columns.shown)), np.nan)
    chosen = sweep.selected() if sweep.contested else []
    framed = []
    for result in results:
        at = [
            list(own.shown).index(result.point[field]) if field in result.point else slice(None)
            for field, own in scales.items()
        ]
        values[at[0], at[1]] = np.mean(sweep.accuracy(result))
        if any(result is c for c in chosen) and all(field in result.point for field in scales):
            framed.append(at)
    figure = heatmaps.grid(
        values,
        xlabel=columns.label,
        ylabel=rows.label,
        label=label,
        x_names=[say(value) for value in columns.shown.values()],
        y_names=[say(value) for value in rows.shown.values()],
        limits=(float(np.nanmin(values)), float(np.nanmax(values))),
        decimals=1,
        title="" if "method" in scales else names.method(results[0].point["method"]),
        framed=framed,
        width=float(np.clip(0.55 * len(columns.shown) + 2.2, 3.4, style.WIDTH)),
    )
    if framed:
        style.caption(figure, f"Framed: {sweep.criterion}.")
    return figure


def _stack(sweep: Sweep, results: Sequence[Result]) -> np.ndarray:
    """Returns accuracies ``[X, S]`` by point and seed; missing seeds are nan."""
    values = [sweep.accuracy(r) for r in results]
    width = max(map(len, values))
    return np.array([(*v, *[np.nan] * (width - len(v))) for v in values])
