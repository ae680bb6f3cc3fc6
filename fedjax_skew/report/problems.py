"""Grouping of runs into problems, which have the same data, partition and model.

Only runs of one problem can be compared. Runs with equal configurations belong to different
problems if they recorded different data or different partitions of one seed.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_skew import methods
from fedjax_skew.config import FIELDS, flatten
from fedjax_skew.metrics import curves
from fedjax_skew.metrics.over_clients import worst_decile
from fedjax_skew.report import names
from fedjax_skew.runs.store import Record

# Fields of server_data are included, because the clients' samples depend on them.
_DATA = tuple(
    name
    for name in FIELDS
    if name.startswith(("dataset.", "server_data.")) and not FIELDS[name].execution
)
SHARED = (*_DATA, "partition", "num_clients", "model")
_SHOWN = ("method", "num_seeds")  # Fields that have their own columns.


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a problem.

    Attributes:
        key: an identifier, unique among all runs.
        record: the content of its directory.
        fields: its configuration by dotted names, with only those hyper-parameters that are used.
        directory: its directory, relative to that of all runs.
        differs: fields that distinguish it from other runs of its problem, such as ``"tau=0.5"``.
    """

    key: str
    record: Record
    fields: Mapping[str, Any]
    directory: str
    differs: str = ""

    @property
    def method(self) -> str:
        """The label of the method, or the name of the directory without a configuration."""
        return names.method(str(self.fields.get("method", self.record.path.name)))

    @property
    def name(self) -> str:
        """The method, with the fields that distinguish the run in brackets."""
        return f"{self.method} ({self.differs})" if self.differs else self.method

    @functools.cached_property
    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Rounds ``[T]`` and test accuracies ``[S, T]`` in percent."""
        rounds, values = self.record.curve("accuracy")
        return np.array(rounds, int), 100 * np.array(values, float).reshape(
            len(values), len(rounds)
        )

    def score(self, column: str, which: str) -> tuple[float, float | None] | None:
        """Returns mean and standard deviation over seeds of a column of metrics, in percent.

        Args:
            column: for example ``"accuracy"``.
            which: ``last``, ``best`` or ``mean_last_50``.
        """
        rounds, values = self.record.curve(column)
        if not rounds:
            return None
        return curves.mean_std(curves.summarize(rounds, 100 * np.array(values))[which])

    @functools.cached_property
    def client_accuracy(self) -> np.ndarray | None:
        """Accuracy of every client on its own label distribution in percent, ``[S, K]``.

        It is that of the clients' own models if the method has them, with nan for clients that were
        not evaluated, and otherwise that of the global model; None without a table of clients.
        """
        table = self.record.clients or {}
        if not {"seed", "own_accuracy", "global_accuracy"} <= set(table):
            return None
        own = table["own_accuracy"]
        values = table["global_accuracy"] if np.isnan(own).all() else own
        seeds = len(np.unique(table["seed"]))
        if not values.size or values.size % seeds or np.isnan(values).all():
            return None
        return 100 * values.reshape(seeds, -1)

    @functools.cached_property
    def worst_decile(self) -> tuple[float, float | None] | None:
        """Mean and standard deviation over seeds of the lowest tenth of ``client_accuracy``."""
        if self.client_accuracy is None:
            return None
        return curves.mean_std(worst_decile(self.client_accuracy))

    @property
    def megabytes(self) -> float | None:
        """Megabytes sent in both directions so far, averaged over seeds; None if not counted."""
        return curves.mean_std(self.record.megabytes)[0] if self.record.megabytes else None

    @property
    def seconds(self) -> float | None:
        """Wall time of training and evaluation so far."""
        return self.record.lines[-1].get("seconds") if self.record.lines else None

    @functools.cached_property
    def accuracy(self) -> float:
        """Last mean accuracy in percent; minus infinity if there is none."""
        found = self.score("accuracy", "last")
        return found[0] if found and math.isfinite(found[0]) else -math.inf


@dataclasses.dataclass(frozen=True)
class Problem:
    """Runs that can be compared.

    Attributes:
        key: an identifier, unique on the page.
        title: data, partition, model and number of clients.
        runs: the runs, sorted by decreasing accuracy.
    """

    key: str
    title: str
    runs: tuple[Run, ...]


def problems(records: Sequence[Record]) -> list[Problem]:
    """Groups runs into problems, in the order of their first run."""
    root = os.path.commonpath([str(record.path.parent.resolve()) for record in records] or ["."])
    found: dict[tuple[str, ...], list[Run]] = {}
    for place, record in enumerate(records):
        fields = _fields(record.config)
        run = Run(f"run{place}", record, fields, os.path.relpath(record.path.resolve(), root))
        found.setdefault(tuple(str(fields.get(name, "")) for name in SHARED), []).append(run)
    result: list[Problem] = []
    for runs in found.values():
        groups = _by_recorded_data(runs)
        for known, members in groups:
            title = _title(members[0].fields)
            if len(groups) > 1:
                title += ", " + _recorded(known)
            ordered = sorted(_distinguished(members), key=lambda run: -run.accuracy)
            result.append(Problem(f"problem{len(result)}", title, tuple(ordered)))
    return result


def _by_recorded_data(runs: Sequence[Run]) -> list[tuple[dict[str, str], list[Run]]]:
    """Separates runs that recorded different data; runs without a record join the first group."""
    groups: list[tuple[dict[str, str], list[Run]]] = []
    for run in runs:
        mine = run.record.data_hashes
        for known, members in groups:
            if all(known.get(name, value) == value for name, value in mine.items()):
                known.update(mine)
                members.append(run)
                break
        else:
            groups.append((dict(mine), [run]))
    return groups


def _recorded(known: Mapping[str, str]) -> str:
    """Returns a text such as ``"data 3f2a91c0, partition of seed 0 77ab01f2"``."""
    return ", ".join(f"{name} {value[:8]}" for name, value in list(known.items())[:2])


def _title(fields: Mapping[str, Any]) -> str:
    if not fields:
        return "Not started"
    words = [names.dataset(str(fields["dataset.name"])), str(fields["partition"])]
    words += [names.model(str(fields["model"])), f"{fields['num_clients']} clients"]
    words += [
        f"{name}={names.value(fields[name])}"
        for name in _DATA
        if name != "dataset.name" and fields[name] != FIELDS[name].default
    ]
    return ", ".join(words)


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields by dotted names; fields that an older file lacks have their defaults."""
    if not config:
        return {}
    given = flatten(config)
    used = str(given.get("method", "")).split("+")
    fields = {name: field.default for name, field in FIELDS.items()}
    for method in set(used) & set(methods.REGISTRY):
        fields |= {f"hparams.{method}.{k}": v for k, v in methods.defaults(method).items()}
    fields |= {
        name: value
        for name, value in given.items()
        if not name.startswith("hparams.") or name.split(".")[1] in used
    }
    return {n: list(v) if isinstance(v, tuple) else v for n, v in fields.items()}


def _distinguished(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs with ``differs`` set, omitting values that more than half of them share."""
    found = []
    for run in runs:
        words = []
        for name, value in run.fields.items():
            others = [r for r in runs if r.fields]
            if name.startswith("hparams."):
                others = [r for r in others if r.fields["method"] == run.fields["method"]]
            elif not _counts(name):
                continue
            same = sum(r.fields.get(name) == value for r in others)
            if same < len(others) and 2 * same <= len(others):
                alone = name.startswith("hparams.") and "+" not in str(run.fields["method"])
                short = name.split(".", 2)[2] if alone else name.removeprefix("hparams.")
                words.append(f"{short}={names.value(value)}")
        found.append(dataclasses.replace(run, differs=", ".join(words)))
    return found


def _counts(name: str) -> bool:
    """Returns whether a field affects results and is neither in the title nor a column."""
    if name not in FIELDS or name in (*SHARED, *_SHOWN):
        return False
    return not (FIELDS[name].execution or FIELDS[name].resumable)
