"""Test accuracy of runs over rounds, and against the megabytes that were sent until then."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedjax_skew.report import lines
from fedjax_skew.runs.store import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = dict[str, tuple[np.ndarray, np.ndarray]]

# What accuracy is drawn against, with the label of the axis and the title of a panel.
AGAINST = {
    "round": ("round", "over rounds"),
    "megabytes": ("megabytes sent, both directions", "against megabytes"),
}


def series(runs: Mapping[str, Sequence[Record]], against: str = "round") -> Series:
    """``(x [T], test accuracy [S, T] in percent)`` by name, as ``lines.curves`` takes them.

    Args:
        runs: by name, one run or several with the seeds of one configuration. A name without an
            evaluation, or without counted bytes, is left out.
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
    """One panel over rounds and one against megabytes, as far as there are any; else None.

    Args:
        runs: as for ``series``.
        title: what the runs have in common, for the panels' titles.
    """
    panels, labels = {}, []
    for against, (label, words) in AGAINST.items():
        found = series(runs, against)
        if found:
            panels[f"{title} {words}".strip()] = found
            labels.append(label)
    return lines.curves(panels, xlabel=labels) if panels else None
