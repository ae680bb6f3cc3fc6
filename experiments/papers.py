"""A paper as data: its recipe, its tables and its figures.

``configs/<paper>.py`` defines the record ``PAPER``, and ``configs/<paper>.json`` holds the numbers
that the paper prints in its tables.
"""

import dataclasses
import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from configs.common import finish
from experiments import printed, recipes, selection
from experiments.printed import Row
from experiments.recipes import Note, Setting
from experiments.selection import Run
from fedjax_skew import errors
from fedjax_skew.data import spec
from fedjax_skew.report import names

Change = Callable[[ml_collections.ConfigDict], None]

_METRICS = {
    "accuracy": "accuracy",
    "head_acc": "head_accuracy",
    "macro_f1": "macro_f1",
    "middle_acc": "middle_accuracy",
    "rounds_to_target": "accuracy",
    "speedup": "accuracy",
    "tail_acc": "tail_accuracy",
}


class Shown(NamedTuple):
    """One curve, bar or panel of a figure.

    Attributes:
        row: method, data, model and partition, from which the recipe makes a configuration.
        fields: fields of the configuration that differ from the recipe.
    """

    row: Row
    fields: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Attributes:
        number: the number of the figure in the paper.
        caption: what it shows, in a sentence or two.
        kind: the kind of drawing, a key of ``experiments.figure_drawings.KINDS``.
        shown: its contents in order.
        chosen: choices that the paper does not state, one sentence each.
        options: keyword arguments of the drawing.
        smoke: default of ``--only`` in a smoke run.
    """

    number: int
    caption: str
    kind: str
    shown: tuple[Shown, ...]
    chosen: tuple[str, ...] = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    smoke: str = ""

    @property
    def trained(self) -> bool:
        """Whether it shows trained models rather than partitions only."""
        return self.kind != "partitions"

    def position(self, row: Row) -> int:
        """Returns the position of a row in the figure."""
        return [one.row for one in self.shown].index(row)


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper's experiments.

    Attributes:
        key: the name of the paper and of its method, such as ``"fedlc"``.
        about: a description of the method, in a paragraph.
        recipe: all settings; if several apply to a field, the last one counts.
        reported: which number of a curve the paper prints: ``last``, ``best`` or ``mean_last_50``.
        cpu: changes a configuration in place so that it fits two CPU cores, by a smaller network
            and as few other changes as possible.
        short: changes the result of ``cpu`` so that a run takes minutes on one core.
        figures: the figures of the paper.
        notes: further sentences about the recipe.
        variants: changes to a configuration by name, for ``--variant``.
        beyond: additional columns by table, as ``(like, dataset, model)``: the column ``like`` with
            another dataset and model.
        training_pool: datasets whose printed accuracy is that of the training set.
        independent: results of others for the same method, one sentence each.
    """

    key: str
    about: str
    recipe: tuple[Setting, ...]
    reported: str
    cpu: Change
    short: Change
    figures: tuple[Figure, ...]
    notes: tuple[Note, ...] = ()
    variants: Mapping[str, Change] = dataclasses.field(default_factory=dict)
    beyond: Mapping[str, tuple[str, str, str]] = dataclasses.field(default_factory=dict)
    training_pool: tuple[str, ...] = ()
    independent: tuple[str, ...] = ()

    def figure(self, place: str) -> Figure:
        """Returns a figure by its place, such as ``"figure2"``."""
        return next(f for f in self.figures if f"figure{f.number}" == place)

    def settings(self, place: str, row: Row) -> dict[str, Setting]:
        """Returns, by field, the settings of the configuration of a printed number."""
        return recipes.settings(self.recipe, place, row)

    def config(self, place: str, row: Row) -> ml_collections.ConfigDict:
        """Returns the configuration of a printed number of a table or figure."""
        return recipes.configure(self.recipe, place, row)

    def runs(self, place: str) -> list[Run]:
        """Returns all runs of a table or figure in order; equal configurations share a run."""
        return list(_runs(self.key, place))

    def measured(self, row: Row) -> tuple[str, str]:
        """Returns the column of a run's summary that answers a printed number, and which value."""
        column = _METRICS[row.metric]
        if row.metric in ("rounds_to_target", "speedup"):
            return column, "rounds_to_target"
        return "train_accuracy" if row.dataset in self.training_pool else column, self.reported

    def get_config(self, arg: str = "") -> ml_collections.ConfigDict:
        """Returns one configuration, such as ``table1,method=fedlc,dataset=cifar10,beta=0.1``.

        The first word is a table or figure. If several of its cells match, the first one is taken.
        ``cpu``, ``short`` and ``smoke`` shrink the configuration, and ``variant=NAME`` applies a
        variant of the recipe.
        """
        words = [word.strip() for word in spec.split(arg, ",", "config argument") if word.strip()]
        places = [name.partition("/")[2] for name in names_of(self.key)]
        if not words or words[0] not in places:
            raise errors.unknown(
                f"configs/{self.key}.py: table or figure", " ".join(words[:1]), places
            )
        scales = [word for word in words[1:] if word in ("cpu", "short", "smoke")]
        variants = [w.partition("=")[2] for w in words[1:] if w.startswith("variant=")]
        rest = [w for w in words[1:] if w not in scales and not w.startswith("variant=")]
        chosen = selection.select(self.runs(words[0]), selection.parse(",".join(rest)))
        config = chosen[0].config.copy_and_resolve_references()
        for variant in variants:
            self.vary(config, variant)
        for scale in scales:
            if scale != "smoke":
                self.shrink(config, scale)
        return finish(config, "smoke" if "smoke" in scales else "")

    def shrink(self, config: ml_collections.ConfigDict, scale: str) -> None:
        """Changes a configuration in place to the scale ``cpu`` or ``short``."""
        self.cpu(config)
        if scale == "short":
            self.short(config)

    def vary(self, config: ml_collections.ConfigDict, variant: str) -> None:
        """Applies a named variant to a configuration in place."""
        if variant not in self.variants:
            raise errors.unknown("variant", variant, self.variants)
        self.variants[variant](config)


@functools.cache
def paper(key: str) -> Paper:
    """Returns a paper by its key."""
    return importlib.import_module(f"configs.{key}").PAPER


def of(name: str) -> tuple[Paper, str]:
    """Returns the paper and the place of a name such as ``"fedlc/table1"``.

    Raises:
        ValueError: if there is no such table or figure.
    """
    kind, allowed = (
        ("figure", figure_names()) if "/fig" in name else ("table", printed.table_names())
    )
    if name not in allowed:
        raise errors.unknown(kind, name, allowed)
    key, _, place = name.partition("/")
    return paper(key), place


def figure_names() -> tuple[str, ...]:
    """Returns the names of all figures, ``"<paper>/figure<number>"``, paper by paper."""
    return tuple(
        f"{key}/figure{figure.number}" for key in printed.papers() for figure in paper(key).figures
    )


def names_of(key: str) -> tuple[str, ...]:
    """Returns the names of the tables and figures of one paper."""
    return tuple(n for n in (*printed.table_names(), *figure_names()) if n.startswith(f"{key}/"))


def is_figure(name: str) -> bool:
    """Returns whether a name is that of a figure."""
    return name in figure_names()


def title(name: str) -> str:
    """Returns the title of a table or figure, such as ``"FedVLS Table 1"``."""
    found, place = of(name)
    return (
        printed.title(name)
        if "table" in place
        else f"{names.method(found.key)} {recipes.place_words(place)}"
    )


def figure(name: str) -> Figure:
    """Returns a figure by its name, such as ``"fedlc/figure2"``."""
    found, place = of(name)
    return found.figure(place)


def caption(name: str) -> str:
    """Returns what a table or figure shows."""
    return figure(name).caption if is_figure(name) else printed.caption(name)


def show(
    method: str,
    dataset: str,
    model: str,
    partition: str,
    *,
    series: str = "",
    panel: str = "",
    x: float | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Shown:
    """Returns one curve, bar or panel of a figure.

    Args:
        method: the method; this and the next three are written as in the tables.
        dataset: the dataset.
        model: the network, or ``"unstated"``.
        partition: how the data is split.
        series: its name in the legend; defaults to the name of the method.
        panel: the title of its panel.
        x: its position on the horizontal axis.
        fields: fields of the configuration that differ from the paper's recipe. ``--only`` can
            select by them, under the last part of their names.
    """
    fields = fields or {}
    extras = {field.rpartition(".")[2]: str(value) for field, value in fields.items()}
    if x is not None:
        extras["x"] = f"{x:g}"
    row = Row(
        method=method,
        dataset=dataset,
        model=model,
        partition=partition,
        metric="accuracy",
        value=math.nan,
        std=None,
        printed="",
        setting="",
        extras=extras,
        row=series or names.method(method),
        column=panel,
    )
    return Shown(row, fields)


@functools.cache
def _runs(key: str, place: str) -> Sequence[Run]:
    found = paper(key)
    if "figure" in place:
        pairs = []
        for row, fields in found.figure(place).shown:
            config = found.config(place, row)
            config.update_from_flattened_dict(fields)
            pairs.append((row, config))
    else:
        rows = printed.load(f"{key}/{place}")
        if place in found.beyond:
            rows = rows + _another_column(rows, *found.beyond[place])
        pairs = [(row, found.config(place, row)) for row in rows]
    return selection.gather(pairs)


def _another_column(rows: Sequence[Row], like: str, dataset: str, model: str) -> list[Row]:
    """Returns a column that the paper does not print: a printed one with another dataset."""
    return [
        row._replace(
            dataset=dataset, model=model, column=dataset, value=math.nan, std=None, printed=""
        )
        for row in rows
        if row.column == like
    ]
