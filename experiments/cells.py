"""The cells of a table or figure: chosen, scaled, and found again in the results store.

A cell is one run with its directory ``<workdir>/cells/<name>``. The name says what is computed, so
a store may hold several tables, figures and scales, and what two of them share is computed once.
"""

import dataclasses
import importlib
import pathlib
import re
from collections.abc import Iterable, Sequence
from types import ModuleType

import ml_collections

from configs import figures, tables
from configs.common import fit_phases
from experiments import scale as scale_rules
from fedjax_skew import errors, methods
from fedjax_skew.config import EXECUTION_FIELDS, used_hparams
from fedjax_skew.report import collect, reference, store
from fedjax_skew.report.result_table import Table
from fedjax_skew.runs import rundir


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a table or figure.

    Attributes:
        run: configuration and printed numbers, after scaling.
        full: the configuration of the paper's recipe.
        directory: of the run.
        whole: with the seeds in runs of their own, the configuration of all of them together.
        name: the table or figure, if it belongs to one.
        scale: how the run differs from the paper's recipe, in the words of the command line.
    """

    run: tables.Run
    full: ml_collections.ConfigDict
    directory: pathlib.Path
    whole: ml_collections.ConfigDict | None = None
    name: str = ""
    scale: str = "full"

    @property
    def config(self) -> ml_collections.ConfigDict:
        """What is computed."""
        return self.run.config

    @property
    def title(self) -> str:
        """A few words for progress and lists."""
        c = self.config
        seed = f" seed={c.seed}" if self.whole else ""
        return f"{c.method} {c.dataset.name} {c.partition}{seed}"

    def record(self) -> store.Record:
        """What its directory holds now; results of another configuration do not count."""
        record = store.read(self.directory)
        if record.config:
            differs = rundir.differences(record.config, self.config.to_dict())
            differs = [field for field in differs if field not in EXECUTION_FIELDS]
            if differs:
                reason = f"{self.directory} was computed with another {differs[0]}; move it away"
                return dataclasses.replace(record, summary={}, failure=reason)
        return record


def module(name: str) -> ModuleType:
    """``configs/<paper>/table<N>.py`` or ``configs/<paper>/figure<N>.py``."""
    kind = "figure" if name in figures.names() or "/fig" in name else "table"
    allowed = figures.names() if kind == "figure" else reference.table_names()
    if name not in allowed:
        raise errors.unknown(kind, name, allowed)
    return importlib.import_module(f"configs.{name.replace('/', '.')}")


def recipe(name: str) -> ModuleType:
    """``configs/<paper>/recipe.py`` of a table or figure."""
    return importlib.import_module(f"configs.{name.partition('/')[0]}.recipe")


def title(name: str) -> str:
    """``"FedVLS Table 1"`` or ``"FedVLS Figure 1"``."""
    return module(name).FIGURE.title if name in figures.names() else reference.title(name)


def plan(
    name: str,
    workdir: str | pathlib.Path,
    *,
    only: str = "",
    scale: str = "full",
    seeds: int = 0,
    rounds: int = 0,
    changes: Sequence[str] = (),
    data_dir: str = "",
    split_seeds: bool = False,
) -> list[Cell]:
    """The cells of a table or figure.

    Args:
        name: ``fedvls/table1`` or ``fedvls/figure1``.
        workdir: root of the results store.
        only: ``dataset=mnist,method=fedavg,fedvls``; all cells if empty.
        scale: ``full``, ``cpu`` or ``smoke``.
        seeds: number of seeds in place of the recipe's.
        rounds: number of rounds in place of the recipe's.
        changes: ``field=value`` for any field of the configuration.
        data_dir: where the data is.
        split_seeds: every seed is a run of its own, which gives the same numbers.
    """
    if scale not in scale_rules.SCALES:
        raise errors.unknown("scale", scale, scale_rules.SCALES)
    source, shrunk = module(name), scale_rules.scaled
    if name in figures.names():
        shrunk = scale_rules.scaled_figure if source.FIGURE.trained else scale_rules.unscaled
        only = only or (source.FIGURE.smoke if scale == "smoke" else "")
    label = " ".join([scale, *sorted([*changes, *([f"rounds={rounds}"] if rounds else [])])])
    found = []
    for run in tables.select(source.runs(), tables.parse(only)):
        config = shrunk(run.config, scale, recipe(name).shrink)
        if seeds:
            config.num_seeds = seeds
        if rounds:
            config.rounds = rounds
        for change in changes:
            scale_rules.change(config, change)
        fit_phases(config)
        config.dataset.data_dir = data_dir
        config.figures = config.tensorboard = False
        for part in split_by_seed(config) if split_seeds else [config]:
            made = tables.Run(part, run.rows)
            directory = pathlib.Path(workdir) / "cells" / made.name
            whole = config if split_seeds else None
            found.append(Cell(made, run.config, directory, whole, name, label))
    return sorted(found, key=lambda cell: cell.config.seed) if split_seeds else found


def scale_flags(scale: str) -> str:
    """The flags that a cell's ``scale`` stands for."""
    size, *changes = scale.split(" ")
    words = [f"--scale={size}"]
    for change in changes:
        words.append(f"--{change}" if change.startswith("rounds=") else f"--set={change}")
    return " ".join(words)


def command(name: str, scale: str = "full") -> str:
    """The command that makes a table or figure at a scale."""
    kind = "figure" if name in figures.names() else "table"
    flags = f"{scale_flags(scale)} " if scale != "full" else ""
    return (
        f"python -m experiments.reproduce --{kind}={name} {flags}"
        f"--workdir=runs/{name.replace('/', '_')}"
    )


def split_by_seed(config: ml_collections.ConfigDict) -> list[ml_collections.ConfigDict]:
    """A configuration with one seed for each of the given one's."""
    parts = []
    for seed in range(config.seed, config.seed + config.num_seeds):
        part = config.copy_and_resolve_references()
        part.seed, part.num_seeds = seed, 1
        parts.append(part)
    return parts


def build_table(table: str, cells: Sequence[Cell]) -> list[Table]:
    """The table with whatever is finished, and a second one where the paper scored its own data."""
    rules = recipe(table)
    entries = [collect.Entry(cell.run.rows, cell.record()) for cell in cells]
    which = {rules.measured(row)[1] for cell in cells for row in cell.run.rows}
    made = collect.table(
        table,
        entries,
        rules.measured,
        reported=which.pop() if len(which) == 1 else rules.REPORTED,
        row_marks=_marks(cells),
        scaled=scaled_sentences(cells),
        footnotes=(
            *_chosen(table, rules.UNSTATED),
            *machines(entry.record for entry in entries),
        ),
    )
    second = collect.held_out(made, entries, rules.measured)
    return [made, second] if second else [made]


def scaled_sentences(cells: Iterable[Cell]) -> tuple[str, ...]:
    """What differs from the recipe, one sentence a field."""
    return scale_rules.sentences((cell.full, cell.whole or cell.config) for cell in cells)


def _marks(cells: Iterable[Cell]) -> dict[str, tuple[str, ...]]:
    """What a reader must know about a method, by row: the server's data it trains on."""
    marks: dict[str, tuple[str, ...]] = {}
    for cell in cells:
        method = methods.build(cell.config.method, used_hparams(cell.config))
        kinds = [
            kind for kind in ("labelled", "unlabelled") if getattr(method, f"needs_{kind}_data")
        ]
        if kinds:
            for row in cell.run.rows:
                marks[row.row] = (f"Trains on {' and '.join(kinds)} data on the server.",)
    return marks


def _chosen(table: str, unstated: Iterable[str]) -> tuple[str, ...]:
    """What the paper does not say and the recipe chose, without what is about other tables."""
    mine = reference.title(table).rpartition(" ")[2]
    about = ((re.match(r"Table (\w+)", sentence), sentence) for sentence in unstated)
    return tuple(f"Chosen here: {s}" for match, s in about if not match or match[1] == mine)


def machines(records: Iterable[store.Record]) -> tuple[str, ...]:
    """One sentence about what computed the finished cells."""
    found: dict[str, float] = {}
    for record in records:
        if record.finished:
            device = record.summary.get("device", {})
            versions = record.summary.get("versions", {})
            words = (
                f"{device.get('count')} x {device.get('kind')} ({device.get('machine')}), "
                f"jax {versions.get('jax')}, fedjax_skew {versions.get('fedjax_skew', 'source')}"
            )
            found[words] = found.get(words, 0.0) + float(record.summary["wall_seconds"])
    return tuple(
        f"Computed on {words}; {seconds / 3600:.2f} h in all." for words, seconds in found.items()
    )
