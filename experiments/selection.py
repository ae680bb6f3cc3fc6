"""The runs of tables and figures, and their selection by ``--only``.

A *run* is one training. It may answer several printed numbers, such as accuracy and macro-F1, or
head, middle and tail accuracy.
"""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_collections

from experiments.printed import Row
from fedjax_skew import errors
from fedjax_skew.config import EXECUTION_FIELDS, default_config, flatten, used_hparams
from fedjax_skew.data import spec

_ARGUMENT = re.compile(r"(\w+)=([^,()]+)")


@dataclasses.dataclass(frozen=True)
class Run:
    """One training of a table or figure.

    Attributes:
        config: its configuration.
        rows: the printed numbers that it answers.
    """

    config: ml_collections.ConfigDict
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The name of its directory, readable and unique for what is computed."""
        c = self.config
        words = [c.method, c.dataset.name, c.model, c.partition, f"{c.rounds}r{c.num_seeds}s"]
        slug = "_".join(re.sub(r"[^A-Za-z0-9.=+]+", "-", word).strip("-") for word in words)
        return f"{slug[:120]}_{fingerprint(c)}"


def fingerprint(config: ml_collections.ConfigDict) -> str:
    """Returns a short hash of what a configuration computes.

    Only fields that differ from the defaults count, so that adding a field does not change existing
    names. Among the hyper-parameters, only those of the methods that are used count.
    """
    plain = _default_fields()
    differs = {
        field: value
        for field, value in flatten(config).items()
        if field not in EXECUTION_FIELDS
        and not field.startswith("hparams.")
        and plain.get(field) != value
    }
    text = json.dumps([differs, used_hparams(config)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def gather(pairs: Iterable[tuple[Row, ml_collections.ConfigDict]]) -> list[Run]:
    """Returns the runs of rows with their configurations; equal configurations share a run."""
    found: dict[str, Run] = {}
    for row, config in pairs:
        run = Run(config, (row,))
        name = run.name
        if name in found:
            run = Run(found[name].config, (*found[name].rows, row))
        found[name] = run
    return list(found.values())


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """Parses ``"dataset=mnist,method=fedavg,fedvls"``; a bare value belongs to the last key."""
    wanted: dict[str, tuple[str, ...]] = {}
    key = ""
    for part in spec.split(text, ",", "only"):
        part = part.strip()
        if not part:
            continue
        # An equals sign inside parentheses belongs to a value such as dirichlet(beta=0.1).
        match = re.fullmatch(r"(\w+)=(.*)", part)
        if match:
            key, part = match.group(1), match.group(2)
        if not key or not part:
            raise ValueError(f"only={text!r} must read like dataset=mnist,method=fedavg,fedvls.")
        wanted[key] = (*wanted.get(key, ()), part)
    return wanted


def select(runs: Sequence[Run], wanted: Mapping[str, Sequence[str]]) -> list[Run]:
    """Returns the runs that have one of the wanted values for every key.

    Raises:
        ValueError: if no run has a key or value, or no run has all of them.
    """
    facets = [_facets(run) for run in runs]
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
        for run, facet in zip(runs, facets, strict=True)
        if all(
            any(_same(value, v) for value in values for v in facet.get(key, ()))
            for key, values in wanted.items()
        )
    ]
    if not chosen:
        words = " and ".join(f"{key}={','.join(values)}" for key, values in wanted.items())
        raise ValueError(f"only: no cell of the table has {words}.")
    return chosen


@functools.cache
def _default_fields() -> dict[str, Any]:
    return flatten(default_config())


def _facets(run: Run) -> dict[str, set[str]]:
    """Returns what a run can be selected by, as named by the paper and by the configuration."""
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
    """Returns whether two values are equal as numbers, or as text without spaces."""
    first, second = first.replace(" ", ""), second.replace(" ", "")
    try:
        return float(first) == float(second)
    except ValueError:
        return first == second
