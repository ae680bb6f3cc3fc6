"""Runs the experiments behind the claims of the papers and decides which claims hold.

    python -m experiments.claims --scale=cpu --workdir=runs/claims --data_dir=DIR --dry_run
    python -m experiments.claims --scale=cpu --workdir=runs/claims --data_dir=DIR \\
        --only=fedlc,fedvls-insensitive
    python -m experiments.claims --workdir=runs/claims --norun --save

Claims are listed in ``configs/claims/``. The runs are cells of the papers' tables and figures in
the store of ``experiments.reproduce``, one per seed. Cells that are finished, or whose numbers are
in the results file, are not run again. Verdicts are computed by the rule in
``experiments.verdicts`` and written to ``claims.md`` and ``claims.csv``. ``--save`` adds the
numbers of the store to the results file and writes the two files next to it, with the papers'
tables as far as they are measured.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from configs.claims import CLAIMS
from experiments import (
    app,
    cells,
    claims_table,
    dry_run,
    figure_numbers,
    launch,
    pages,
    saved_tables,
    scale,
)
from experiments import values as values_
from experiments.cells import Cell
from experiments.collect import write_texts
from experiments.verdicts import Claim, Term
from fedjax_skew import errors

RESULTS = "experiments/results/runs.csv"


def define_flags() -> None:
    """Defines the flags. This is not done at import because other binaries use the same names."""
    flags.DEFINE_string("workdir", None, "Root of the results store.")
    flags.DEFINE_list(
        "only", [], "Papers or claims, separated by commas, such as fedlc,fedvls-insensitive."
    )
    flags.DEFINE_enum("scale", "cpu", scale.SCALES, "How much to shrink the recipes.")
    flags.DEFINE_multi_string("set", [], "field=value for any other field; can be repeated.")
    flags.DEFINE_integer("rounds", 0, "Number of rounds; 0 keeps the recipe's.", lower_bound=0)
    flags.DEFINE_integer("seeds", 2, "Number of seeds per cell.", lower_bound=1)
    flags.DEFINE_string("data_dir", "", "Directory of the prepared datasets.")
    flags.DEFINE_bool("run", True, "Run missing cells; --norun only judges existing numbers.")
    flags.DEFINE_bool("dry_run", False, "List the claims and the cost of missing cells, and exit.")
    flags.DEFINE_bool("save", False, "Add the numbers of the store to the results file.")
    flags.DEFINE_string("results", RESULTS, "File with the numbers measured so far.")


def main(argv: Sequence[str]) -> None:
    """Plans and runs the cells, judges the claims and writes the tables."""
    flag = flags.FLAGS
    if not flag.workdir:
        raise ValueError("workdir is not set; choose the results store with --workdir=DIR.")
    chosen, results = choose(CLAIMS, flag.only), pathlib.Path(flag.results)
    known = values_.read(results)
    wanted: list[Cell] = []
    if flag.run or flag.dry_run:
        options = {"scale": flag.scale, "seeds": flag.seeds, "rounds": flag.rounds}
        options |= {"changes": flag.set, "data_dir": flag.data_dir}
        wanted = missing(needed(chosen, flag.workdir, **options), known)
    once = list({cell.directory: cell for cell in wanted}.values())
    if flag.dry_run:
        print("\n".join(lacking(chosen, wanted)))
        print(dry_run.describe("Claims", once))
        return
    done = run(wanted, flag.workdir)
    found = values_.merge(known, values_.harvest(flag.workdir))
    if flag.save:
        found = [value for value in found if not value.scale.startswith("smoke")]
        values_.write(results, found)
        found = values_.read(results)  # As rounded there.
        files = write(results.parent, CLAIMS, found)
        files += saved_tables.write(results.parent, found)
        if results.resolve() == pages.RESULTS:
            files += pages.write_all()
    else:
        files = write(pathlib.Path(flag.workdir), chosen, found)
    print(claims_table.summary(claims_table.build(chosen, found, CLAIMS)))
    launch.finish(once, files, done)


def write(
    folder: pathlib.Path, claims: Sequence[Claim], found: Sequence[values_.Value]
) -> list[pathlib.Path]:
    """Writes ``claims.md`` and ``claims.csv`` and returns their paths."""
    table = claims_table.build(claims, found, CLAIMS)
    texts = {"claims.md": claims_table.markdown(table), "claims.csv": claims_table.csv(table)}
    return write_texts(folder, texts)


def lacking(claims: Sequence[Claim], wanted: Sequence[Cell]) -> list[str]:
    """Returns one line per claim with the number of its missing cells."""
    lines = []
    for claim in claims:
        mine = {cell.directory for cell in wanted if answers(cell, claim.terms)}
        lines.append(f"{len(mine):5d} cells  {claim.id}: {claim.sentence}")
    return lines


def choose(claims: Sequence[Claim], only: Sequence[str]) -> list[Claim]:
    """Returns the claims selected by paper or by id; all of them if ``only`` is empty."""
    allowed = {claim.paper for claim in claims} | {claim.id for claim in claims}
    for word in only:
        if word not in allowed:
            raise errors.unknown("only", word, allowed)
    return [c for c in claims if not only or c.paper in only or c.id in only]


def needed(claims: Sequence[Claim], workdir: str, **options: Any) -> list[Cell]:
    """Returns the cells that answer claims, one per seed, with the first seed of every cell first.

    Args:
        claims: the claims.
        workdir: root of the results store.
        **options: further arguments of ``cells.plan``.
    """
    terms = [term for claim in claims for term in claim.terms]
    found = []
    for name in dict.fromkeys(term.name for term in terms):
        planned = cells.plan(name, workdir, split_seeds=True, **options)
        found += [cell for cell in planned if answers(cell, terms)]
    return sorted(found, key=lambda cell: cell.config.seed)


def answers(cell: Cell, terms: Sequence[Term]) -> bool:
    """Returns whether a cell answers one of the numbers that claims need."""
    places = {(term.row, term.column) for term in terms if term.name == cell.name}
    if figure_numbers.has_numbers(cell.name):
        return bool(places)
    return any(values_.place(row) in places for row in cell.run.rows)


def missing(wanted: Sequence[Cell], known: Sequence[values_.Value]) -> list[Cell]:
    """Returns the cells that answer a number which is not known yet."""
    keys = {value.key for value in known}
    figures_known = {(key.name, key.scale, key.seed) for key in keys}

    def lacks(cell: Cell) -> bool:
        seed = cell.config.seed
        if figure_numbers.has_numbers(cell.name):
            return (cell.name, cell.scale, seed) not in figures_known
        places = [values_.place(row) for row in cell.run.rows]
        return any(values_.Key(cell.name, *p, cell.scale, seed) not in keys for p in places)

    return [cell for cell in wanted if lacks(cell)]


def run(wanted: Sequence[Cell], workdir: str) -> bool:
    """Runs cells and computes the numbers of figures; returns False if it was interrupted."""
    for cell in wanted:
        values_.note_answers(cell, cells.command(cell.name, cell.scale))
    if not launch.run(list({cell.directory: cell for cell in wanted}.values())):
        return False
    for name in dict.fromkeys(cell.name for cell in wanted):
        mine = [cell for cell in wanted if cell.name == name]
        figure_numbers.save(name, mine, workdir, cells.command(name, mine[0].scale))
    return True


if __name__ == "__main__":
    define_flags()
    app.run(main)
