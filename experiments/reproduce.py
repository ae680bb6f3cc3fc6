"""Reproduces a table or a figure of one of the papers.

    python -m experiments.reproduce --table=fedlc/table4 --workdir=runs/fedlc_table4 \\
        --only=method=fedavg,fedlc,dataset=synthetic --seeds=3

Every cell is a run directory below ``workdir/cells``. Running the same command again resumes, and
finished cells are not run again. The table is written to ``<paper>_table<N>.md``, ``.csv`` and
``.tex`` with the paper's numbers next to the measured ones. Changes to the recipe are part of the
file name, as in ``fedlc_table1_cpu.md``. The table shows all of its cells that are finished in the
store.

A figure consists of cells as well, and is written to ``<paper>_figure<N>.png`` and ``.pdf``:

    python -m experiments.reproduce --figure=fedlc/figure5 --workdir=runs/fedlc_figure5

To list all tables and figures, or to estimate the cost before running anything:

    python -m experiments.reproduce --list
    python -m experiments.reproduce --table=fedvls/table1 --workdir=runs/fedvls --dry_run
"""

import functools
import shlex
from collections.abc import Sequence

from absl import flags

from experiments import (
    app,
    cells,
    collect,
    dry_run,
    figure_numbers,
    figures,
    launch,
    papers,
    printed,
    scale,
    values,
)
from fedjax_skew import errors

_TABLE = flags.DEFINE_string(
    "table", None, "The table to reproduce, <paper>/table<number>; see --list."
)
_FIGURE = flags.DEFINE_string("figure", None, "The figure to reproduce, <paper>/figure<number>.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Root of the results store.")
_ONLY = flags.DEFINE_string(
    "only", "", "Cells to run, such as dataset=mnist,method=fedavg,fedvls; all if empty."
)
_SEEDS = flags.DEFINE_integer("seeds", 0, "Number of seeds; 0 keeps the paper's.", lower_bound=0)
_SPLIT = flags.DEFINE_bool(
    "split_seeds", False, "Make every seed a separate run, so that more can be added later."
)
_ROUNDS = flags.DEFINE_integer("rounds", 0, "Number of rounds; 0 keeps the paper's.", lower_bound=0)
_SCALE = flags.DEFINE_enum("scale", "full", scale.SCALES, "How much to shrink the recipe.")
_SET = flags.DEFINE_multi_string("set", [], "field=value for any other field; can be repeated.")
_VARIANT = flags.DEFINE_string("variant", "", "Name of a variant of the recipe.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "List the cells and their costs, and exit.")
_LIST = flags.DEFINE_bool("list", False, "List all tables and figures, and exit.")
_DATA_DIR = flags.DEFINE_string("data_dir", "", "Directory of the prepared datasets.")


def main(argv: Sequence[str]) -> None:
    """Lists the tables, estimates the cost, or runs the cells and writes the results."""
    if _LIST.value:
        print(dry_run.listing())
        return
    name, workdir = _name(), _WORKDIR.value
    if _FIGURE.value and _SPLIT.value:
        raise ValueError(
            "split_seeds=True applies to tables only; a figure needs all seeds in one run."
        )
    if not workdir:
        raise ValueError("workdir is not set; --list shows all tables and figures with commands.")
    plan = functools.partial(
        cells.plan,
        name,
        workdir,
        scale=_SCALE.value,
        rounds=_ROUNDS.value,
        changes=_SET.value,
        data_dir=_DATA_DIR.value,
        split_seeds=_SPLIT.value,
        variant=_VARIANT.value,
    )
    chosen = plan(only=_ONLY.value, seeds=_SEEDS.value)
    wanted = chosen
    if _FIGURE.value and not papers.figure(name).trained:
        wanted = []
    if _DRY_RUN.value:
        print(dry_run.describe(papers.title(name), wanted))
        return
    for cell in wanted:
        values.note_answers(cell, command())
    done = launch.run(wanted)
    files: list[str] = []
    if _TABLE.value:
        # With separate runs per seed, the store may have more seeds than are requested now.
        everything = plan(seeds=0 if _SPLIT.value else _SEEDS.value)
        made = cells.build_table(name, cells.with_finished(chosen, everything))
        stem = cells.file_stem(name, _changed())
        print(collect.write(made, workdir, command(), stem))
        files = [f"{workdir}/{stem}.{suffix}" for suffix in ("md", "csv", "tex")]
    elif done:  # A figure may analyse its runs further, which takes time.
        files = [str(path) for path in figures.write(name, chosen, workdir, command())]
        figure_numbers.save(name, chosen, workdir, command())
    launch.finish(wanted, files, done)


def _name() -> str:
    """Returns the table or figure to reproduce."""
    if bool(_TABLE.value) == bool(_FIGURE.value):
        raise ValueError(
            f"table={_TABLE.value!r} and figure={_FIGURE.value!r}: exactly one of the two must be "
            "set; --list shows all tables and figures with commands."
        )
    for kind, name, allowed in (
        ("table", _TABLE.value, printed.table_names()),
        ("figure", _FIGURE.value, papers.figure_names()),
    ):
        if name and name not in allowed:
            raise errors.unknown(kind, name, allowed)
    return _TABLE.value or _FIGURE.value or ""


def _changed() -> list[str]:
    """Returns how the cells differ from the recipe, as on the command line."""
    words = [_SCALE.value] if _SCALE.value != "full" else []
    words += [f"rounds={_ROUNDS.value}"] if _ROUNDS.value else []
    words += [f"variant={_VARIANT.value}"] if _VARIANT.value else []
    return [*words, *_SET.value]


_SHOWN = ("table", "figure", "only", "seeds", "split_seeds", "rounds", "scale", "variant", "set")


def command() -> str:
    """Returns this command without the paths and settings of this machine."""
    words = ["python", "-m", "experiments.reproduce"]
    for flag in _SHOWN:
        value = flags.FLAGS[flag]
        if value.value != value.default:
            values = value.value if isinstance(value.value, list) else [value.value]
            words += [shlex.quote(f"--{flag}={v}") for v in values]
    return " ".join([*words, "--workdir=DIR"])


if __name__ == "__main__":
    app.run(main)
