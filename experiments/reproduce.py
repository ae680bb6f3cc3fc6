"""Reproduces a table of one of the papers.

    python -m experiments.reproduce --table=fedlc/table4 --workdir=runs/fedlc_table4 \\
        --only=method=fedavg,fedlc,dataset=synthetic --seeds=3

Every cell is a run directory below ``workdir/cells``. The same command goes on where it stopped;
finished cells are never run again. The table is written to ``table.md``, ``table.csv`` and
``table.tex`` with the paper's numbers beside the measured ones.

    python -m experiments.reproduce --list
    python -m experiments.reproduce --table=fedvls/table1 --workdir=runs/fedvls --dry_run
"""

import shlex
import sys
from collections.abc import Sequence

import jax
from absl import flags

from experiments import app, cells, dry_run, executor, scale
from fedjax_skew.report import collect
from fedjax_skew.train import Interrupted

_TABLE = flags.DEFINE_string("table", None, "Which table, <paper>/table<number>; see --list.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Root of the results store.")
_ONLY = flags.DEFINE_string(
    "only", "", "Which cells: dataset=mnist,method=fedavg,fedvls (a bare value adds to its key)."
)
_SEEDS = flags.DEFINE_integer("seeds", 0, "Seeds in place of the paper's.", lower_bound=0)
_ROUNDS = flags.DEFINE_integer("rounds", 0, "Rounds in place of the paper's.", lower_bound=0)
_SCALE = flags.DEFINE_enum("scale", "full", scale.SCALES, "How much to shrink.")
_SET = flags.DEFINE_multi_string("set", [], "field=value for any other field; may be repeated.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Lists cells and costs, and ends.")
_LIST = flags.DEFINE_bool("list", False, "Lists all tables and figures, and ends.")
_DATA_DIR = flags.DEFINE_string("data_dir", "", "Where the data is.")
_PARALLEL = flags.DEFINE_enum(
    "parallel", "none", ["none", "runs"], "runs: one process for every device, or --jobs of them."
)
_JOBS = flags.DEFINE_integer("jobs", 0, "Cells at a time; 0 is one for a device.", lower_bound=0)
_EXECUTOR = flags.DEFINE_enum("executor", "local", ["local", "ray"], "Where cells run.")


def main(argv: Sequence[str]) -> None:
    """Lists, estimates, or runs and renders."""
    if _LIST.value:
        print(dry_run.listing())
        return
    table, workdir = _TABLE.value, _WORKDIR.value
    if not table or not workdir:
        name = "workdir" if table else "table"
        raise ValueError(f"{name} is not set; --list shows all tables with their commands.")
    chosen = cells.plan(
        table,
        workdir,
        only=_ONLY.value,
        scale=_SCALE.value,
        seeds=_SEEDS.value,
        rounds=_ROUNDS.value,
        changes=_SET.value,
        data_dir=_DATA_DIR.value,
    )
    if _DRY_RUN.value:
        print(dry_run.describe(table, chosen))
        return
    elsewhere = _PARALLEL.value == "runs" or _EXECUTOR.value == "ray"
    if elsewhere:  # The accelerators belong to the processes that compute.
        jax.config.update("jax_platforms", "cpu")
    stopped = False
    bar = executor.Progress(chosen, dry_run.weights(executor.pending(chosen)))
    try:
        with executor.stop_signals():
            _run(chosen, bar)
    except (Interrupted, KeyboardInterrupt):
        stopped = True
    finally:
        bar.close()
    print(collect.write(cells.build_table(table, chosen), workdir, command()))
    records = [cell.record() for cell in chosen]
    failed = sum(record.status == "failed" for record in records)
    finished = sum(record.finished for record in records)
    summary = f"{finished} of {len(chosen)} cells are finished, {failed} failed"
    if stopped:
        raise Interrupted(f"Stopped: {summary}; the same command goes on from there.")
    print(f"{summary}; the table is in {workdir}/table.md, .csv and .tex.")
    if failed:
        sys.exit(1)


def command() -> str:
    """This command, without the places that belong to this machine."""
    words = ["python", "-m", "experiments.reproduce"]
    for flag in ("table", "only", "seeds", "rounds", "scale", "set"):
        value = flags.FLAGS[flag]
        if value.value != value.default:
            values = value.value if isinstance(value.value, list) else [value.value]
            words += [shlex.quote(f"--{flag}={v}") for v in values]
    return " ".join([*words, "--workdir=DIR"])


def _run(chosen: Sequence[cells.Cell], bar: executor.Progress) -> None:
    if _EXECUTOR.value == "ray":
        from experiments.ray_cells import run_ray

        run_ray(chosen, bar, _JOBS.value)
    elif _PARALLEL.value == "runs":
        from experiments.processes import run_processes

        run_processes(chosen, bar, _JOBS.value)
    else:
        executor.run_here(chosen, bar)


if __name__ == "__main__":
    app.run(main)
