"""The cells of tables, figures and sweeps, and their place in the results store.

A cell is one run with its directory ``<workdir>/cells/<name>``. The name identifies what is
computed, so a store can hold several tables, figures and scales, and a run that two of them share
is computed once.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Sequence

import ml_collections

from configs.common import fit_phases
from experiments import collect, grid, papers, recipes, selection
from experiments import scale as scale_rules
from experiments.printed import Row
from experiments.selection import Run
from fedjax_skew import errors, methods
from fedjax_skew.config import EXECUTION_FIELDS, check, used_hparams
from fedjax_skew.report.result_table import Table
from fedjax_skew.runs import identity, store


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a table or figure.

    Attributes:
        run: the scaled configuration, and the printed numbers that it answers.
        full: the configuration of the paper's recipe.
        directory: the run directory.
        whole: the configuration with all seeds, if every seed is a separate run.
        name: the table or figure, if the cell belongs to one.
        scale: how the run differs from the paper's recipe, as on the command line.
    """

    run: Run
    full: ml_collections.ConfigDict
    directory: pathlib.Path
    whole: ml_collections.ConfigDict | None = None
    name: str = ""
    scale: str = "full"

    @property
    def config(self) -> ml_collections.ConfigDict:
        """The configuration that is run."""
        return self.run.config

    @property
    def title(self) -> str:
        """A short description for progress bars and lists."""
        c = self.config
        seed = f" seed={c.seed}" if self.whole else ""
        return f"{c.method} {c.dataset.name} {c.partition}{seed}"

    def record(self) -> store.Record:
        """Returns what its directory holds, ignoring results of another configuration."""
        record = store.read(self.directory)
        if record.config:
            differs = identity.differences(record.config, self.config.to_dict())
            differs = [field for field in differs if field not in EXECUTION_FIELDS]
            if differs:
                reason = f"{self.directory} was computed with another {differs[0]}; move it away"
                return dataclasses.replace(record, summary={}, failure=reason)
        return record


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
    variant: str = "",
) -> list[Cell]:
    """Returns the cells of a table or figure.

    Args:
        name: the table or figure, such as ``fedvls/table1``.
        workdir: root of the results store.
        only: the cells to select, as in ``dataset=mnist,method=fedavg,fedvls``; all if empty.
        scale: ``full``, ``cpu``, ``short`` or ``smoke``.
        seeds: number of seeds; 0 keeps that of the recipe.
        rounds: number of rounds; 0 keeps that of the recipe.
        changes: ``field=value`` for any field of the configuration.
        data_dir: directory of the prepared datasets.
        split_seeds: make every seed a separate run, which gives the same numbers.
        variant: name of a variant of the paper's recipe.
    """
    if scale not in scale_rules.SCALES:
        raise errors.unknown("scale", scale, scale_rules.SCALES)
    paper, place = papers.of(name)
    figure = paper.figure(place) if papers.is_figure(name) else None
    used = "full" if figure and not figure.trained else scale
    if figure and scale == "smoke":
        only = only or figure.smoke
    words = [*changes, *([f"rounds={rounds}"] if rounds else [])]
    words += [f"variant={variant}"] if variant else []
    found = []
    for run in selection.select(paper.runs(place), selection.parse(only)):
        config = run.config.copy_and_resolve_references()
        if variant:
            paper.vary(config, variant)
        full = config
        config = scale_rules.scaled(full, used, paper.shrink, figure is not None)
        # A recipe that already fits a CPU is run, and labelled, at full scale.
        label = " ".join(["full" if config == full else scale, *sorted(words)])
        if seeds:
            config.num_seeds = seeds
        if rounds:
            config.rounds = rounds
        for change in changes:
            scale_rules.change(config, change)
        fit_phases(config)
        config.dataset.data_dir = data_dir
        config.figures, config.loggers = False, ""
        for part in split_by_seed(config) if split_seeds else [config]:
            made = Run(part, run.rows)
            directory = pathlib.Path(workdir) / "cells" / made.name
            whole = config if split_seeds else None
            found.append(Cell(made, run.config, directory, whole, name, label))
    return sorted(found, key=lambda cell: cell.config.seed) if split_seeds else found


def plan_points(
    config: ml_collections.ConfigDict,
    points: Sequence[grid.Point],
    workdir: pathlib.Path,
    split: bool = False,
) -> list[tuple[grid.Point, list[Cell]]]:
    """Returns every point of a sweep over a configuration, with its validated runs."""
    planned = []
    for point in points:
        whole = fit_phases(grid.configure(config, point))
        check(whole)
        whole.figures, whole.loggers = False, ""
        found = []
        for part in split_by_seed(whole) if split else [whole]:
            run = Run(part, ())
            found.append(Cell(run, whole, workdir / "cells" / run.name, whole if split else None))
        planned.append((point, found))
    return planned


def with_finished(chosen: Sequence[Cell], everything: Iterable[Cell]) -> list[Cell]:
    """Returns the chosen cells and all finished cells of the same table, in the table's order.

    A table of a smaller selection thus keeps the finished results of a larger one.
    """
    wanted = {cell.directory: cell for cell in chosen}
    found = {cell.directory: wanted.get(cell.directory, cell) for cell in everything}
    kept = [c for c in found.values() if c.directory in wanted or c.record().finished]
    return [*kept, *(cell for cell in chosen if cell.directory not in found)]


def file_stem(name: str, words: Iterable[str]) -> str:
    """Returns the name of a table's files, such as ``fedlc_table1_cpu_rounds=300``."""
    return re.sub(r"[^\w.=+-]+", "_", "_".join([name.replace("/", "_"), *words]))


def scale_flags(scale: str) -> str:
    """Returns the flags that produce a cell's ``scale``."""
    size, *changes = scale.split(" ")
    words = [f"--scale={size}"]
    for change in changes:
        own = change.startswith(("rounds=", "variant="))
        words.append(f"--{change}" if own else f"--set={change}")
    return " ".join(words)


def command(name: str, scale: str = "full") -> str:
    """Returns the command that reproduces a table or figure at a scale."""
    kind = "figure" if papers.is_figure(name) else "table"
    flags = f"{scale_flags(scale)} " if scale != "full" else ""
    return (
        f"python -m experiments.reproduce --{kind}={name} {flags}"
        f"--workdir=runs/{name.replace('/', '_')}"
    )


def split_by_seed(config: ml_collections.ConfigDict) -> list[ml_collections.ConfigDict]:
    """Returns one configuration per seed of the given configuration."""
    parts = []
    for seed in range(config.seed, config.seed + config.num_seeds):
        part = config.copy_and_resolve_references()
        part.seed, part.num_seeds = seed, 1
        parts.append(part)
    return parts


def build_table(name: str, cells: Sequence[Cell]) -> list[Table]:
    """Returns the table with all finished cells.

    Where the paper reports the accuracy on its training data, a second table shows the accuracy on
    the test set. With ``dataset.validation`` above 0, the best round is selected on the validation
    set.
    """
    paper, _ = papers.of(name)
    entries = [collect.Entry(cell.run.rows, cell.record()) for cell in cells]
    validated = all(cell.config.dataset.validation > 0 for cell in cells)

    def measured(row: Row) -> tuple[str, str]:
        column, which = paper.measured(row)
        return column, "at_best_validation" if which == "best" and validated else which

    rows = [row for cell in cells for row in cell.run.rows]
    which = {measured(row)[1] for row in rows}
    made = collect.table(
        name,
        collect.cells(entries, measured),
        reported=which.pop() if len(which) == 1 else paper.reported,
        pool={row.column for row in rows if measured(row)[0] == "train_accuracy"},
        row_marks=row_marks(cells),
        scaled=scaled_sentences(cells),
        footnotes=(
            *provenance(name, rows),
            *machines(entry.record for entry in entries),
        ),
    )
    second = collect.held_out(made, entries, measured)
    return [made, second] if second else [made]


def provenance(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """Returns where the recipe of some printed numbers comes from, one sentence per source."""
    paper, place = papers.of(name)
    used = {id(s): s for row in rows for s in paper.settings(place, row).values()}
    sentences = []
    for source, words in recipes.SOURCES.items():
        mine = [s for s in paper.recipe if id(s) in used and s.source == source]
        texts = [f"{s.field}={s.shown}{f' ({s.where})' if s.where else ''}" for s in mine]
        notes = [
            note.text
            for note in paper.notes
            if note.source == source and (not note.places or place in note.places)
        ]
        if texts or notes:
            listed = f"{', '.join(texts)}. " if texts else ""
            sentences.append(f"{source}, {words}: {listed}{' '.join(notes)}".strip())
    return (*sentences, *(f"Independent result: {text}" for text in paper.independent))


def scaled_sentences(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Returns what differs from the recipe, one sentence per field."""
    return scale_rules.sentences((cell.full, cell.whole or cell.config) for cell in cells)


def row_marks(cells: Iterable[Cell]) -> dict[str, tuple[str, ...]]:
    """Returns, by row, a remark about the server data that its method trains on."""
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


def machines(records: Iterable[store.Record]) -> tuple[str, ...]:
    """Returns one sentence per kind of machine that computed the finished cells."""
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
        f"Computed on {words}; {seconds / 3600:.2f} h in total." for words, seconds in found.items()
    )
