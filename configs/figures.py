"""From a paper's figure to the runs that it shows.

A figure's file holds ``FIGURE`` and the same ``runs`` and ``get_config`` as a table's. Its runs
come from the paper's recipe through rows like those of the tables, in which ``row`` names the
series and ``column`` the panel.
"""

import dataclasses
import math
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import ml_collections

from configs import tables
from fedjax_skew.report import names as words
from fedjax_skew.report import reference
from fedjax_skew.report.reference import Row


class Shown(NamedTuple):
    """One curve, bar or panel of a figure.

    Attributes:
        row: what the paper's recipe turns into a configuration.
        fields: fields of the configuration that differ from the recipe.
    """

    row: Row
    fields: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Attributes:
        name: ``"fedlc/figure5"``.
        about: the file's docstring: the figure's title and what it shows in the first paragraph,
            and in a list what the paper does not say and is chosen here.
        kind: which drawing, a key of ``experiments.figure_drawings.KINDS``.
        shown: its contents in the order of the figure.
        recipe: the paper's ``recipe.config``.
        options: passed on to the drawing.
        smoke: ``--only`` of a smoke run that has no other.
    """

    name: str
    about: str
    kind: str
    shown: tuple[Shown, ...]
    recipe: Callable[[Row], ml_collections.ConfigDict]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    smoke: str = ""

    @property
    def title(self) -> str:
        """``"FedLC Figure 5"``."""
        paper, _, number = self.name.partition("/figure")
        return f"{words.method(paper)} Figure {number}"

    @property
    def caption(self) -> str:
        """What it shows, in a sentence or two."""
        first = " ".join(self.about.partition("\n\n")[0].split())
        return first.removeprefix(f"{self.title}. ")

    @property
    def chosen(self) -> tuple[str, ...]:
        """What the paper does not say and is chosen here, one sentence each."""
        found = re.findall(r"^- (.*(?:\n  .*)*)", self.about, re.MULTILINE)
        return tuple(" ".join(text.split()) for text in found)

    @property
    def trained(self) -> bool:
        """Whether it shows trained models, and not partitions alone."""
        return self.kind != "partitions"

    def runs(self) -> list[tables.Run]:
        """All runs in the order of the figure; what needs the same training shares it."""
        return tables.gather((one.row, self._config(one)) for one in self.shown)

    def place(self, row: Row) -> int:
        """Where a row stands in the figure."""
        return [one.row for one in self.shown].index(row)

    def _config(self, one: Shown) -> ml_collections.ConfigDict:
        config = self.recipe(one.row)
        config.update_from_flattened_dict(dict(one.fields))
        return config


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
    """One curve, bar or panel.

    Args:
        method: as in the tables, like the next three.
        dataset: data set.
        model: network, or ``"unstated"``.
        partition: how the data is split.
        series: its name in the legend; the method's when left out.
        panel: title of its panel.
        x: its place on a horizontal axis.
        fields: fields of the configuration that differ from the paper's recipe; ``--only`` also
            knows them, by the last part of their names.
    """
    fields = fields or {}
    extras = {field.rpartition(".")[2]: str(value) for field, value in fields.items()}
    if x is not None:
        extras["x"] = f"{x:g}"
    return Shown(
        Row(
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
            row=series or words.method(method),
            column=panel,
        ),
        fields,
    )


def names() -> tuple[str, ...]:
    """All figures, ``"<paper>/figure<number>"``, in the order of the papers."""
    folder = pathlib.Path(__file__).parent
    papers = dict.fromkeys(table.partition("/")[0] for table in reference.table_names())
    return tuple(
        f"{paper}/{path.stem}"
        for paper in papers
        for path in _by_number((folder / paper).glob("figure*.py"))
    )


def _by_number(paths: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    return sorted(paths, key=lambda path: int(re.sub(r"\D", "", path.stem)))
