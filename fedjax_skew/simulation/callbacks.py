"""Callbacks that a caller may attach to a run."""

from collections.abc import Mapping, Sequence
from typing import Any

Line = Mapping[str, Any]


class Callback:
    """A base class for callbacks that receive the metrics of a run, in process 0.

    Subclasses override the hooks that they need. ``fedjax_skew.simulation.columns.COLUMNS``
    describes the columns of a line.
    """

    def on_start(self, history: Sequence[Line]) -> None:
        """Called before the first round, with the earlier lines if the run is resumed."""

    def on_evaluation(self, line: Line) -> None:
        """Called after every evaluation."""

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Called with the summary after the last round."""

    def close(self) -> None:
        """Called last, also if the run is interrupted or fails, but not if it never started."""
