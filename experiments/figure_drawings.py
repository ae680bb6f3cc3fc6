"""Draws each kind of figure from finished runs.

Every function takes the items of a figure in their order, each with a finished run, and the options
of its configuration file. It returns drawings by the suffix of their file names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments import figure_analyses as analyses
from experiments.cells import Cell
from experiments.printed import Row
from fedjax_skew.metrics import classification, skew
from fedjax_skew.report import bars, heatmaps, lines, names, training_curves
from fedjax_skew.runs.store import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawings = dict[str, "Figure"]


class Item(NamedTuple):
    """One curve, bar or panel with its run."""

    row: Row
    cell: Cell
    record: Record

    @property
    def panel(self) -> str:
        """The title of its panel; ``{dataset}`` stands for the dataset that was really used."""
        return self.row.column.format(dataset=names.dataset(self.cell.config.dataset.name))


def partitions(items: Sequence[Item], *, columns: int = 3) -> Drawings:
    """Draws samples by class and client, one panel per partition, without training."""
    found = {item.panel: analyses.class_counts(item.cell) for item in items}
    return {"": heatmaps.partitions(found, columns=columns)}


def curves(items: Sequence[Item], *, columns: int = 2) -> Drawings:
    """Draws test accuracy over rounds, and against megabytes where these were counted."""
    runs: dict[str, dict[str, list[Record]]] = {}
    for item in items:
        runs.setdefault(item.panel, {}).setdefault(item.row.row, []).append(item.record)
    found = {}
    for against, (xlabel, _) in training_curves.AGAINST.items():
        panels = {panel: training_curves.series(own, against) for panel, own in runs.items()}
        if all(panels.values()):
            suffix = "" if against == "round" else f"_{against}"
            found[suffix] = lines.curves(panels, xlabel=xlabel, columns=columns)
    return found


def sensitivity(
    items: Sequence[Item], *, which: str, columns: int = 2, log: bool = False
) -> Drawings:
    """Draws accuracy against hyper-parameters, one panel per hyper-parameter."""
    panels: dict[str, dict[str, list[Any]]] = {}
    for item in items:
        series = panels.setdefault(item.panel, {}).setdefault(item.row.row, [])
        series.append((float(item.row.extras["x"]), _percent(item, which)))
    drawn = {
        panel: {
            name: (np.array([x for x, _ in points]), np.array([values for _, values in points]))
            for name, points in series.items()
        }
        for panel, series in panels.items()
    }
    label = f"test accuracy (%)\n{names.reported_briefly(which)}"
    return {"": lines.sensitivity(drawn, columns=columns, log=log, ylabel=label)}


def accuracy_bars(items: Sequence[Item], *, which: str, xlabel: str) -> Drawings:
    """Draws accuracy by group (the panel of an item) and method."""
    groups = list(dict.fromkeys(item.panel for item in items))
    seeds = max(len(_percent(item, which)) for item in items)
    series: dict[str, np.ndarray] = {}
    for item in items:
        values = series.setdefault(item.row.row, np.full((len(groups), seeds), np.nan))
        values[groups.index(item.panel)] = _percent(item, which)
    label = f"test accuracy (%)\n{names.reported_briefly(which)}"
    return {"": bars.grouped_bars(groups, series, xlabel=xlabel, ylabel=label)}


def local_update(items: Sequence[Item], *, clients: Sequence[int], columns: int = 2) -> Drawings:
    """Draws accuracy per class of the global model and of local models, with class counts."""
    panels = []
    for item in items:
        found = analyses.local_update(item.cell)
        score = 100 * float(classification.accuracy(found["aggregated"][0]))
        for client in clients:
            if client >= found["class_counts"].shape[1]:
                continue
            title = f"client {client}" if len(clients) > 1 else f"{item.panel}: {score:.1f} %"
            shown = {
                "before the local update": analyses.recall(found["before"][0]),
                "after the local update": analyses.recall(found["after"][0, client]),
            }
            panels.append(bars.ClassBars(title, shown, found["class_counts"][0, client]))
    return {"": bars.class_bars(panels, columns=columns, ylabel="test accuracy (%)")}


def aggregation(items: Sequence[Item], *, methods: Sequence[str], local_epochs: int) -> Drawings:
    """Draws accuracy per class by method: mean of the local models, and the averaged model."""
    panels: dict[str, dict[str, np.ndarray]] = {"before aggregation": {}, "after aggregation": {}}
    for method in methods:
        found = analyses.local_update(items[0].cell, method, local_epochs)
        before = analyses.recall(found["after"]).mean(1)
        after = analyses.recall(found["aggregated"])
        for panel, values in zip(panels.values(), (before, after), strict=True):
            panel[names.method(method)] = values.T
    shown = [bars.ClassBars(title, series) for title, series in panels.items()]
    return {"": bars.class_bars(shown, ylabel="test accuracy (%)")}


def confusion(items: Sequence[Item], *, client: int) -> Drawings:
    """Draws the confusion matrix of one client's model after its local update (first seed)."""
    found = analyses.local_update(items[0].cell)
    client = min(client, found["class_counts"].shape[1] - 1)
    roles = skew.class_roles(found["class_counts"][0, client])
    drawn = heatmaps.confusion(
        found["after"][0, client], title=f"client {client}, {items[0].row.row}", roles=roles
    )
    return {"": drawn}


def tsne(items: Sequence[Item], *, per_class: int = 60) -> Drawings:
    """Draws a t-SNE of the features of test samples, one panel per method (first seed)."""
    panels = {}
    for item in items:
        found = analyses.features(item.cell, per_class=per_class)
        panels[item.row.row] = lines.tsne(found["features"]), found["labels"]
    return {"": lines.scatter(panels, label="class")}


def local_tsne(
    items: Sequence[Item],
    *,
    methods: Sequence[str],
    local_epochs: int,
    like: tuple[int, int],
    per_class: int = 150,
) -> Drawings:
    """Draws a t-SNE of a majority, a minority and a missing class after a local update.

    The client and the classes are those whose counts are closest in ratio to ``like``, the counts
    of the minority and the majority class.
    """
    cell = items[0].cell
    class_counts = analyses.class_counts(cell)
    client, classes = nearest_client(class_counts, like)
    roles = ("missing", "minority", "majority")
    counts = class_counts[client]
    named = {c: f"{role} ({counts[c]:,})" for c, role in zip(classes, roles, strict=True)}
    panels = {}
    for method in methods:
        found = analyses.features(
            cell, client=client, method=method, local_epochs=local_epochs, per_class=per_class
        )
        mine = np.isin(found["labels"], classes)
        points = lines.tsne(found["features"][mine])
        panels[names.method(method)] = points, found["labels"][mine]
    return {"": lines.scatter(panels, class_names=named, label="class (training samples)")}


def nearest_client(class_counts: np.ndarray, like: tuple[int, int]) -> tuple[int, list[int]]:
    """Returns the client, and its missing, minority and majority class, closest to given counts.

    Args:
        class_counts: samples ``[K, C]`` by client and class.
        like: desired counts of the minority and the majority class.
    """
    best: tuple[float, int, list[int]] | None = None
    for client, counts in enumerate(class_counts):
        vacant, present = np.flatnonzero(counts == 0), np.flatnonzero(counts)
        majority = int(np.argmax(counts))
        for minority in present[present != majority]:
            if not vacant.size:
                continue
            pair = np.array([counts[minority], counts[majority]], np.float64)
            distance = float(np.abs(np.log(pair / np.array(like))).sum())
            if best is None or distance < best[0]:
                best = distance, client, [int(vacant[0]), int(minority), majority]
    if best is None:
        raise ValueError(
            "no client of this partition has a missing, a minority and a majority class; this "
            "figure needs a stronger label skew."
        )
    return best[1], best[2]


def curves_and_tsne(
    items: Sequence[Item], *, features_of: Sequence[str], per_class: int = 60
) -> Drawings:
    """Draws curves of all methods, and a t-SNE of the features of some of them."""
    found = {f"_1{suffix}": drawing for suffix, drawing in curves(items).items()}
    some = [item for item in items if item.row.method in features_of]
    return {**found, "_2": tsne(some, per_class=per_class)[""]} if some else found


def blocks(items: Sequence[Item], **training: Any) -> Drawings:
    """Draws accuracy and distances of logits after retraining one block of a model."""
    found = analyses.retrained_blocks(items[0].cell, **training)
    changed = [name for name in found if name != "FedAvg"]
    columns = {
        "test accuracy (%)": (list(found), "accuracy", 100),
        "cosine distance": (changed, "cosine", 1),
        "Euclidean distance": (changed, "euclidean", 1),
    }
    panels = {
        ylabel: {name: factor * found[name][column] for name in shown}
        for ylabel, (shown, column, factor) in columns.items()
    }
    return {"": bars.bar_panels(panels)}


KINDS: Mapping[str, Callable[..., Drawings]] = {
    function.__name__: function
    for function in (
        partitions,
        curves,
        sensitivity,
        accuracy_bars,
        local_update,
        aggregation,
        confusion,
        tsne,
        local_tsne,
        curves_and_tsne,
        blocks,
    )
}


def _percent(item: Item, which: str) -> np.ndarray:
    return 100 * np.array(item.record.values("accuracy", which))
