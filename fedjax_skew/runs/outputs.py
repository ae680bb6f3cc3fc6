"""Files of a run beside its numbers: the partition, and TensorBoard events."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedjax_skew.errors import import_extra
from fedjax_skew.runs import rundir

MOST_COUNTS = 1_000_000  # classes times clients that are still written to partition.csv


def write_partition(workdir: pathlib.Path, class_counts: np.ndarray, figure: bool) -> None:
    """A partition ``[K, C]``, as numbers that ``counts(path)`` reads and as a figure."""
    path = workdir / "partition.csv"
    if not path.exists() and class_counts.size <= MOST_COUNTS:
        rows = (",".join(map(str, row)) for row in class_counts.T.tolist())
        rundir.write_text(path, "\n".join(rows) + "\n")
    path = path.with_suffix(".png")
    if path.exists() or not figure:
        return
    from fedjax_skew.report import heatmaps, style

    style.save(heatmaps.partitions({"": class_counts}), path.with_suffix(""))


@contextlib.contextmanager
def tensorboard(workdir: pathlib.Path, first: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes a line of metrics; events after round ``first`` are forgotten."""
    tensorboardX = import_extra("tensorboardX", "runs")

    directory = str(workdir / "tensorboard")
    with tensorboardX.SummaryWriter(directory, purge_step=first + 1) as writer:

        def write(line):
            for name, value in line.items():
                if name in ("round", "confusion", "per_class_accuracy") or value is None:
                    continue
                values = value if isinstance(value, list) else [value]
                values = [v for v in values if v is not None]
                if values:
                    writer.add_scalar(name, float(np.mean(values)), line["round"])

        yield write
