"""Computes the numbers behind figures that analyse a finished run."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from experiments import figure_analyses as analyses
from experiments import papers, values
from experiments.cells import Cell
from experiments.papers import Figure
from fedjax_skew.metrics import skew
from fedjax_skew.report import names

Numbers = dict[tuple[str, str], np.ndarray]  # by row and column, one number per seed
_ROLES = ("majority", "minority", "vacant")
_TAU = 1.0  # FedLC's margin scale


def figure_values(name: str, cells: Iterable[Cell], command: str) -> list[values.Value]:
    """Returns all numbers of a figure's finished cells; ``has_numbers`` must be true."""
    figure = papers.figure(name)
    found: list[values.Value] = []
    for cell in cells:
        record = cell.record()
        if not record.finished:
            continue
        for (row, column), numbers in _KINDS[figure.kind](figure, cell).items():
            for i, number in enumerate(numbers):
                found.append(
                    values.Value(
                        name=name,
                        row=row,
                        column=column,
                        scale=cell.scale,
                        seed=cell.config.seed + i,
                        value=float(number),
                        command=command,
                        **values.facts(record),
                    )
                )
    return found


def has_numbers(name: str) -> bool:
    """Returns whether a figure has numbers beyond the accuracies of its runs."""
    return papers.is_figure(name) and papers.figure(name).kind in _KINDS


def role_accuracies(confusion: np.ndarray, class_counts: np.ndarray) -> np.ndarray:
    """Computes the mean accuracy of majority, minority and vacant classes over clients.

    Args:
        confusion: confusion matrices ``[S, K, C, C]``.
        class_counts: samples ``[S, K, C]``, which determine the role of a class for a client.

    Returns:
        Accuracies ``[S, 3]`` in percent. A client without a class of some role is left out of the
        mean for that role.
    """
    recall = analyses.recall(confusion)
    roles = np.asarray(skew.class_roles(class_counts))  # [S, K, 3, C]
    size = roles.sum(-1)
    mean = (recall[:, :, None] * roles).sum(-1) / np.maximum(size, 1)
    held = size > 0
    return (mean * held).sum(1) / np.maximum(held.sum(1), 1)


def _local_update(figure: Figure, cell: Cell) -> Numbers:
    """Returns accuracy by role before and after the local update, over all clients."""
    found = analyses.local_update(cell)
    counts = found["class_counts"]
    before = np.broadcast_to(found["before"][:, None], found["after"].shape)
    numbers: Numbers = {}
    for when, confusion in (("before", before), ("after", found["after"])):
        by_role = role_accuracies(confusion, counts)
        for i, role in enumerate(_ROLES):
            for row in cell.run.rows:
                numbers[f"{role} {when}", row.column] = by_role[:, i]
    return numbers


def _aggregation(figure: Figure, cell: Cell) -> Numbers:
    """Returns mean accuracies of local and averaged models, and median deviation bounds."""
    numbers: Numbers = {}
    for method in figure.options["methods"]:
        found = analyses.local_update(cell, method, figure.options["local_epochs"])
        label = names.method(method)
        numbers[label, "local models"] = analyses.recall(found["after"]).mean((1, 2))
        numbers[label, "averaged model"] = analyses.recall(found["aggregated"]).mean(1)
    bounds = analyses.deviation_bounds(cell, tau=_TAU)
    numbers["deviation bound", "plain"] = bounds["plain"]
    numbers["deviation bound", "calibrated"] = bounds["calibrated"]
    return numbers


def _blocks(figure: Figure, cell: Cell) -> Numbers:
    """Returns the accuracy of the unchanged model and after retraining each block."""
    found = analyses.retrained_blocks(cell, **figure.options)
    return {(block, "accuracy"): 100 * arrays["accuracy"] for block, arrays in found.items()}


_KINDS: dict[str, Callable[[Figure, Cell], Numbers]] = {
    "local_update": _local_update,
    "aggregation": _aggregation,
    "blocks": _blocks,
}


def save(name: str, cells: Sequence[Cell], workdir: str, command: str) -> None:
    """Adds a figure's numbers, if it has any, to the file of the store."""
    if has_numbers(name):
        path = values.figure_file(workdir)
        values.write(path, values.merge(values.read(path), figure_values(name, cells, command)))
