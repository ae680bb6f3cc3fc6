"""From the rows of a paper's table to the runs that answer them.

A *run* is one training; it may answer several printed numbers (accuracy and macro-F1, or head,
middle and tail). A paper's ``recipe.py`` turns a printed row into a configuration, its
``table<N>.py`` names the table.
"""

import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ml_collections

from configs.common import finish
from fedjax_skew import errors
from fedjax_skew.config import EXECUTION_FIELDS, default_config, flatten, used_hparams
from fedjax_skew.data import datasets, spec
from fedjax_skew.report import reference
from fedjax_skew.report.reference import Row

_MODELS = {"dnn3": "mlp"}
_ARGUMENT = re.compile(r"(\w+)=([^,()]+)")
_METRICS = {
    "accuracy": "accuracy",
    "head_acc": "head_accuracy",
    "macro_f1": "macro_f1",
    "middle_acc": "middle_accuracy",
    "rounds_to_target": "accuracy",
    "speedup": "accuracy",
    "tail_acc": "tail_accuracy",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One training of a table.

    Attributes:
        config: its configuration.
        rows: the printed numbers it answers.
    """

    config: ml_collections.ConfigDict
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """Name of its directory: readable, and unique for what is computed."""
        c = self.config
        words = [c.method, c.dataset.name, c.model, c.partition, f"{c.rounds}r{c.num_seeds}s"]
        slug = "_".join(re.sub(r"[^A-Za-z0-9.=+]+", "-", word).strip("-") for word in words)
        return f"{slug[:120]}_{fingerprint(c)}"


def fingerprint(config: ml_collections.ConfigDict) -> str:
    """A short hash of what a configuration computes.

    Only fields that differ from the defaults count, so that a field added later changes no name,
    and of the hyper-parameters only those of the methods that are used.
    """
    plain = _plain()
    differs = {
        field: value
        for field, value in flatten(config).items()
        if field not in EXECUTION_FIELDS
        and not field.startswith("hparams.")
        and plain.get(field) != value
    }
    text = json.dumps([differs, used_hparams(config)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def runs(
    table: str, make: Callable[[Row], ml_collections.ConfigDict], beyond: Sequence[Row] = ()
) -> list[Run]:
    """All runs of a table in printed order; rows with the same configuration share one.

    Args:
        table: its name, ``"fedvls/table1"``.
        make: the paper's recipe.
        beyond: rows that the paper does not print; see ``another_column``.
    """
    return gather((row, make(row)) for row in (*reference.load(table), *beyond))


def gather(pairs: Iterable[tuple[Row, ml_collections.ConfigDict]]) -> list[Run]:
    """Runs for rows with their configurations, in order; equal configurations share one."""
    found: dict[str, Run] = {}
    for row, config in pairs:
        run = Run(config, (row,))
        name = run.name
        if name in found:
            run = Run(found[name].config, (*found[name].rows, row))
        found[name] = run
    return list(found.values())


def another_column(table: str, like: str, dataset: str, model: str) -> list[Row]:
    """A column that the paper does not print: one that it does, with another data set.

    Args:
        table: its name.
        like: the column to start from.
        dataset: the other data set, which also names the column.
        model: its network.
    """
    return [
        row._replace(
            dataset=dataset, model=model, column=dataset, value=math.nan, std=None, printed=""
        )
        for row in reference.load(table)
        if row.column == like
    ]


def get_config(table_runs: Sequence[Run], arg: str) -> ml_collections.ConfigDict:
    """The configuration of one run, chosen by ``key=value,...``, maybe with ``smoke``.

    What is not said takes the table's first row and column.
    """
    words = [word for word in spec.split(arg, ",", "config argument") if word.strip()]
    chosen = select(table_runs, parse(",".join(w for w in words if w.strip() != "smoke")))
    config = chosen[0].config
    return finish(config, "smoke" if "smoke" in (w.strip() for w in words) else "")


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """``"dataset=mnist,method=fedavg,fedvls"``: a bare value continues the key before it."""
    wanted: dict[str, tuple[str, ...]] = {}
    key = ""
    for part in spec.split(text, ",", "only"):
        part = part.strip()
        if not part:
            continue
        # An equals sign inside brackets belongs to a value such as dirichlet(beta=0.1).
        match = re.fullmatch(r"(\w+)=(.*)", part)
        if match:
            key, part = match.group(1), match.group(2)
        if not key or not part:
            raise ValueError(f"only={text!r} must read like dataset=mnist,method=fedavg,fedvls.")
        wanted[key] = (*wanted.get(key, ()), part)
    return wanted


def select(table_runs: Sequence[Run], wanted: Mapping[str, Sequence[str]]) -> list[Run]:
    """The runs that have one of the wanted values for every key.

    Raises:
        ValueError: if a key or value is not in the table, or nothing is left.
    """
    facets = [_facets(run) for run in table_runs]
    for key, values in wanted.items():
        known = sorted({name for facet in facets for name in facet})
        if key not in known:
            raise errors.unknown("only: key", key, known)
        for value in values:
            if not any(_same(value, v) for facet in facets for v in facet.get(key, ())):
                raise errors.unknown(
                    f"only: {key}", value, {v for facet in facets for v in facet.get(key, ())}
                )
    chosen = [
        run
        for run, facet in zip(table_runs, facets, strict=True)
        if all(
            any(_same(value, v) for value in values for v in facet.get(key, ()))
            for key, values in wanted.items()
        )
    ]
    if not chosen:
        words = " and ".join(f"{key}={','.join(values)}" for key, values in wanted.items())
        raise ValueError(f"only: no cell of the table has {words}.")
    return chosen


def start(row: Row) -> ml_collections.ConfigDict:
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
        config.model = _MODELS.get(row.model, row.model)
    return config


def set_hparams(config: ml_collections.ConfigDict, **by_method: Mapping[str, Any]) -> None:
    """Sets ``hparams.<method>.<field>``."""
    for method, values in by_method.items():
        for field, value in values.items():
            config.hparams[method][field] = value


def column(row: Row) -> str:
    """The column of ``summary.json`` and ``metrics.jsonl`` that answers a printed number."""
    return _METRICS[row.metric]


@functools.cache
def _defaults() -> ml_collections.ConfigDict:
    return default_config()


@functools.cache
def _plain() -> dict[str, Any]:
    return flatten(_defaults())


def _facets(run: Run) -> dict[str, set[str]]:
    """What a run can be selected by, in the paper's words and in the configuration's."""
    c = run.config
    found = {"method": {c.method}, "dataset": {c.dataset.name}, "model": {c.model}}
    found["partition"] = set() if c.dataset.name.startswith("synthetic") else {c.partition}
    for row in run.rows:
        found["method"].add(row.method)
        found["dataset"].add(row.dataset)
        found["model"].add(row.model)
        found["partition"].add(row.partition)
        for key, value in (*_ARGUMENT.findall(row.partition), *row.extras.items()):
            if key != "gain":
                found.setdefault(key, set()).add(value)
    return {key: values - {"unstated"} for key, values in found.items()}


def _same(first: str, second: str) -> bool:
    """Equal as text without blanks, or as numbers."""
    first, second = first.replace(" ", ""), second.replace(" ", "")
    try:
        return float(first) == float(second)
    except ValueError:
        return first == second
