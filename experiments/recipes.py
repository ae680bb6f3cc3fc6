"""The recipe of a paper: the value of every field, where it applies, and where it comes from.

A recipe is a list of settings. Those that apply to a printed number, in order, make the
configuration that computes it; of several for one field the last one counts.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from experiments.printed import Row
from fedjax_skew.config import default_config
from fedjax_skew.data import datasets
from fedjax_skew.report import names

P, C, H = "P", "C", "H"
SOURCES = {P: "from the paper", C: "from the authors' code", H: "chosen here"}


class FromRow(NamedTuple):
    """A value that depends on the printed number.

    Attributes:
        words: what it is.
        read: gives it.
    """

    words: str
    read: Callable[[Row], Any]


@dataclasses.dataclass(frozen=True)
class Setting:
    """The value of one field, where it applies, and where it comes from.

    Attributes:
        field: of the configuration, with dots.
        value: its value, or a ``FromRow``.
        source: ``P`` (the paper), ``C`` (the authors' code) or ``H`` (chosen here).
        note: why, in a sentence.
        places: tables and figures, ``("table2", "figure1")``; everywhere if empty.
        data: datasets as the paper calls them; all if empty.
        methods: methods; all if empty.
        parts: methods, alone or in a combination; all if empty.
        extras: further columns of the table with their values.
    """

    field: str
    value: Any
    source: str
    note: str = ""
    _: dataclasses.KW_ONLY
    places: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    extras: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def applies(self, place: str, row: Row) -> bool:
        """Whether it applies to a printed number of a table or figure."""
        return (
            (not self.places or place in self.places)
            and (not self.data or row.dataset in self.data)
            and (not self.methods or row.method in self.methods)
            and (not self.parts or bool(set(self.parts) & set(row.method.split("+"))))
            and all(row.extras.get(key) == value for key, value in self.extras.items())
        )

    @property
    def where(self) -> str:
        """Where it applies, in words; empty for everywhere."""
        words = [", ".join(place_words(place) for place in self.places)]
        words.append(", ".join(names.dataset(name) for name in self.data))
        words.append(", ".join(names.method(name) for name in (*self.methods, *self.parts)))
        words.append(", ".join(names.assignment(*pair) for pair in self.extras.items()))
        return "; ".join(filter(None, words))

    @property
    def shown(self) -> str:
        """Its value in words."""
        if isinstance(self.value, FromRow):
            return self.value.words
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)


class Note(NamedTuple):
    """A sentence about how a paper's experiments are computed that belongs to no field."""

    source: str
    text: str
    places: tuple[str, ...] = ()


def settings(recipe: Sequence[Setting], place: str, row: Row) -> dict[str, Setting]:
    """By field, the setting that applies to a printed number of a table or figure."""
    return {setting.field: setting for setting in recipe if setting.applies(place, row)}


def configure(recipe: Sequence[Setting], place: str, row: Row) -> ml_collections.ConfigDict:
    """The configuration of a printed number of a table or figure."""
    config = _start(row)
    values = {field: setting.value for field, setting in settings(recipe, place, row).items()}
    config.update_from_flattened_dict(
        {field: v.read(row) if isinstance(v, FromRow) else v for field, v in values.items()}
    )
    return config


def place_words(place: str) -> str:
    """``"table1"`` becomes ``"Table 1"``."""
    return place.replace("table", "Table ").replace("figure", "Figure ")


def _start(row: Row) -> ml_collections.ConfigDict:
    """The default configuration with what a printed row says: method, data, model, partition."""
    config = _defaults().copy_and_resolve_references()
    config.method = row.method
    if row.dataset == "synthetic":
        config.dataset.name, config.partition = row.partition, "natural"
    elif row.dataset != "unstated":
        info = datasets.find(row.dataset)
        config.dataset.name = info.name if info else row.dataset
        config.partition = row.partition
    if row.model != "unstated":
        config.model = "mlp" if row.model == "dnn3" else row.model  # FedVLS's name for it
    return config


@functools.cache
def _defaults() -> ml_collections.ConfigDict:
    return default_config()
