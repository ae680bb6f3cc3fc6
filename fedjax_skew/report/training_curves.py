"""Test accuracy of runs over rounds and over the megabytes sent so far."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedjax_skew.report import lines
from fedjax_skew.runs.store import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = dict[str, tuple[np.ndarray, np.ndarray]]

# The quantities on the horizontal axis, with the label of the axis and the title of a panel.
AGAINST = {
    "round": ("round", "over rounds"),
    "megabytes": ("megabytes sent, both directions", "against megabytes"),
}


def series(runs: Mapping[str, Sequence[Record]], against: str = "round") -> Series:
    """Returns ``(x [T], test accuracy [S, T] in percent)`` by name, for ``lines.curves``.

    Args:
        runs: by name, one or several runs with the seeds of one configuration. A name without
            evaluations, or without counted bytes, is omitted.
        against: one of ``AGAINST``.
    """
    found: Series = {}
    for name, records in runs.items():
        parts = [record.curve("accuracy", against) for record in records]
        length = min((len(x) for x, _ in parts), default=0)
        if length:
            x = np.mean([x[:length] for x, _ in parts], 0)
            values = [seed[:length] for _, seeds in parts for seed in seeds]
            found[name] = x.astype(int) if against == "round" else x, 100 * np.array(values, float)
    return found


def draw(runs: Mapping[str, Sequence[Record]], title: str = "") -> "Figure | None":
    """Draws one panel over rounds and one over megabytes; returns None if there is no data.

    Args:
        runs: as for ``series``.
        title: a description of the runs for the panels' titles.
    """
    panels, labels = {}, []
    for against, (label, words) in AGAINST.items():
        found = series(runs, against)
        if found:
            panels[f"{title} {words}".strip()] = found
            labels.append(label)
    return lines.curves(panels, xlabel=labels) if panels else None
