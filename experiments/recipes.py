"""The recipe of a paper: the value of every field, where it applies, and where it comes from.

A recipe is a list of settings. The settings that apply to a printed number define the configuration
that reproduces it. If several apply to one field, the last one counts.
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
        words: a description of the value.
        read: returns the value for a printed number.
    """

    words: str
    read: Callable[[Row], Any]


@dataclasses.dataclass(frozen=True)
class Setting:
    """The value of one field, where it applies, and where it comes from.

    Attributes:
        field: dotted name of the field of the configuration.
        value: its value, or a ``FromRow``.
        source: ``P`` (the paper), ``C`` (the authors' code) or ``H`` (chosen here).
        note: an explanation, in a sentence.
        places: tables and figures such as ``("table2", "figure1")``; all if empty.
        data: datasets as the paper calls them; all if empty.
        methods: methods; all if empty.
        parts: methods, alone or as part of a combination; all if empty.
        extras: required values of further columns of the table.
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
        """Returns whether it applies to a printed number of a table or figure."""
        return (
            (not self.places or place in self.places)
            and (not self.data or row.dataset in self.data)
            and (not self.methods or row.method in self.methods)
            and (not self.parts or bool(set(self.parts) & set(row.method.split("+"))))
            and all(row.extras.get(key) == value for key, value in self.extras.items())
        )

    @property
    def where(self) -> str:
        """A description of where it applies; empty if it applies everywhere."""
        words = [", ".join(place_words(place) for place in self.places)]
        words.append(", ".join(names.dataset(name) for name in self.data))
        words.append(", ".join(names.method(name) for name in (*self.methods, *self.parts)))
        words.append(", ".join(names.assignment(*pair) for pair in self.extras.items()))
        return "; ".join(filter(None, words))

    @property
    def shown(self) -> str:
        """Its value as text."""
        if isinstance(self.value, FromRow):
            return self.value.words
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)


class Note(NamedTuple):
    """A sentence about the recipe that does not belong to a field."""

    source: str
    text: str
    places: tuple[str, ...] = ()


def settings(recipe: Sequence[Setting], place: str, row: Row) -> dict[str, Setting]:
    """Returns, by field, the setting that applies to a printed number of a table or figure."""
    return {setting.field: setting for setting in recipe if setting.applies(place, row)}


def configure(recipe: Sequence[Setting], place: str, row: Row) -> ml_collections.ConfigDict:
    """Returns the configuration of a printed number of a table or figure."""
    config = _start(row)
    values = {field: setting.value for field, setting in settings(recipe, place, row).items()}
    config.update_from_flattened_dict(
        {field: v.read(row) if isinstance(v, FromRow) else v for field, v in values.items()}
    )
    return config


def place_words(place: str) -> str:
    """Returns the title of a place: ``"table1"`` becomes ``"Table 1"``."""
    return place.replace("table", "Table ").replace("figure", "Figure ")


def _start(row: Row) -> ml_collections.ConfigDict:
    """Returns the default configuration with the method, data, model and partition of a row."""
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
