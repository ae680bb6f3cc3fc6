"""What a caller may attach to a run."""

from collections.abc import Mapping, Sequence
from typing import Any

Line = Mapping[str, Any]


class Callback:
    """Sees the metrics of a run as they appear, in process 0; subclasses override what they need.

    ``fedjax_skew.simulation.columns.COLUMNS`` describes the columns of a line.
    """

    def on_start(self, history: Sequence[Line]) -> None:
        """Called before the first round with the lines of a run that is resumed, if any."""

    def on_evaluation(self, line: Line) -> None:
        """Called after every evaluation."""

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Called with the summary after the last round."""

    def close(self) -> None:
        """Called last, also when the run is interrupted or fails; nothing if it never started."""
