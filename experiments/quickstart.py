"""Trains three methods on skewed synthetic data and compares them with FedLC's paper.

    python -m experiments.quickstart

This needs no download and takes a minute or two on two cores. It writes ``table.md``,
``curves.png`` and one directory per method to ``runs/quickstart``. Running the same command again
resumes.
"""

import pathlib
from collections.abc import Sequence

import tqdm
from absl import flags

from configs import fedlc, quickstart
from experiments import app, collect, printed
from experiments.cells import Cell, scaled_sentences
from experiments.executor import run_cell
from experiments.selection import Run
from fedjax_skew.report import names, style, training_curves
from fedjax_skew.report.result_table import Header, Table

_NOTES = (
    "FedLC: a class that a client lacks counts as one sample (hparams.fedlc.min_count=1); the "
    "paper does not say how it treats such classes.",
)
_ADVICE = """\
How to read these numbers: the paper trains for {full} rounds and this run for {rounds}, so
the accuracy is still rising. Expect 62 to 68 % for FedAvg, FedRS and FedLC after 50 rounds.
Their differences are then no larger than the spread over seeds, so their order has no
meaning yet. After 300 rounds FedAvg reaches about 77 % here. The paper prints 63 %, for
data with an additional label skew that it does not describe, so compare methods within a
column rather than with the number in brackets. The full table is in
experiments/results/fedlc_table4_full.md.

Next: change the method, the partition or any other field of one run,

    python -m experiments.train --workdir=runs/first --config.method=fedlc+scaffold

or list the tables and figures that can be reproduced: python -m experiments.reproduce --list
"""
TABLE, COLUMN = "fedlc/table4", "synthetic synthetic(1,1)"


def cells(methods: Sequence[str], workdir: str, rounds: int = 0, seeds: int = 0) -> list[Cell]:
    """Returns one cell per method, with the recipe of the paper's table for comparison."""
    paper = {row.row: row for row in printed.load(TABLE) if row.column == COLUMN}
    found = []
    for method in methods:
        config = quickstart.get_config()
        config.method = method
        config.rounds = rounds or config.rounds
        config.num_seeds = seeds or config.num_seeds
        row = paper.get(method, paper["fedavg"]._replace(method=method, row=method))
        full = fedlc.PAPER.config("table4", row)
        full.hparams = config.hparams
        found.append(Cell(Run(config, (row,)), full, pathlib.Path(workdir) / method))
    return found


def table(chosen: Sequence[Cell]) -> Table:
    """Returns the measured numbers, next to those of the paper where it has the method."""
    entries = [collect.Entry(cell.run.rows, cell.record()) for cell in chosen]
    measured = collect.cells(entries, fedlc.PAPER.measured)
    paper = {row.row: row for row in printed.load(TABLE) if row.column == COLUMN}
    methods = [cell.config.method for cell in chosen]
    rows = tuple(Header(method, "", names.method(method)) for method in methods)
    full = {
        (row.key, COLUMN): collect.beside(measured[row.key, COLUMN], paper.get(row.key))
        for row in rows
    }
    return Table(
        title="Quick start: Synthetic(1,1)",
        rows=rows,
        columns=(Header(COLUMN, "", "accuracy"),),
        cells=full,
        caption="Logistic regression, 100 clients, compared with FedLC's Table 4 (ICML 2022).",
        reported="last",
        paper_reported="last",
        scaled=scaled_sentences(chosen),
        footnotes=_NOTES if "fedlc" in methods else (),
    )


def advice(chosen: Sequence[Cell]) -> str:
    """Returns what can be concluded from the numbers, and what to try next."""
    return _ADVICE.format(full=chosen[0].full.rounds, rounds=chosen[0].config.rounds)


def define_flags() -> None:
    """Defines the flags. This is not done at import because other binaries use the same names."""
    flags.DEFINE_string("workdir", "runs/quickstart", "Directory of the results.")
    flags.DEFINE_list("methods", ["fedavg", "fedrs", "fedlc"], "Methods to compare.")
    flags.DEFINE_integer(
        "rounds", 0, "Number of rounds; 0 keeps the configuration's.", lower_bound=0
    )
    flags.DEFINE_integer("seeds", 0, "Number of seeds; 0 keeps the configuration's.", lower_bound=0)


def main(argv: Sequence[str]) -> None:
    """Trains the methods, prints the table and draws the curves."""
    values = flags.FLAGS
    chosen = cells(values.methods, values.workdir, values.rounds, values.seeds)
    for cell in tqdm.tqdm(chosen, desc="methods", unit="method"):
        if not cell.record().finished:
            run_cell(cell.config, cell.directory, progress=True)
    print(collect.write([table(chosen)], values.workdir))
    runs = {names.method(cell.config.method): [cell.record()] for cell in chosen}
    drawn = training_curves.draw(runs, "Synthetic(1,1)")
    if drawn:
        png, _ = style.save(drawn, pathlib.Path(values.workdir) / "curves")
        print(f"The table is in {values.workdir}/table.md, the curves are in {png}.\n")
    print(advice(chosen))


if __name__ == "__main__":
    define_flags()
    app.run(main)
