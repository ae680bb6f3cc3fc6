"""Runs cells on the chosen executor; shared by all binaries that run cells."""

import sys
from collections.abc import Iterable, Sequence

import jax
from absl import flags

from experiments import dry_run, executor
from experiments.cells import Cell
from fedjax_skew.runs.train import Interrupted

PARALLEL = flags.DEFINE_enum(
    "parallel", "none", ["none", "runs"], "runs: one process per device, or --jobs processes."
)
JOBS = flags.DEFINE_integer("jobs", 0, "Cells at a time; 0 means one per device.", lower_bound=0)
EXECUTOR = flags.DEFINE_enum(
    "executor", "local", ["local", "ray"], "Run cells on this machine or on a Ray cluster."
)


def run(cells: Sequence[Cell]) -> bool:
    """Runs all cells that are not finished; returns False if it was interrupted."""
    if PARALLEL.value == "runs" or EXECUTOR.value == "ray":
        # The accelerators are used by the processes that run the cells.
        jax.config.update("jax_platforms", "cpu")
    bar = executor.Progress(cells, dry_run.weights(executor.pending(cells)))
    try:
        with executor.stop_signals():
            if EXECUTOR.value == "ray":
                from experiments.ray_cells import run_ray

                run_ray(cells, bar, JOBS.value)
            elif PARALLEL.value == "runs":
                from experiments.processes import run_processes

                run_processes(cells, bar, JOBS.value)
            else:
                executor.run_here(cells, bar)
    except (Interrupted, KeyboardInterrupt):
        return False
    finally:
        bar.close()
    return True


def finish(cells: Sequence[Cell], files: Iterable[object], done: bool) -> None:
    """Prints how many cells are finished and which files were written, and ends the program.

    Args:
        cells: the requested cells; some figures need none.
        files: the files that were written.
        done: what ``run`` returned.

    Raises:
        Interrupted: if the run was interrupted.
        SystemExit: with code 1 if a cell failed.
    """
    records = [cell.record() for cell in cells]
    failed = sum(record.status == "failed" for record in records)
    finished = sum(record.finished for record in records)
    summary = f"{finished} of {len(cells)} cells are finished, {failed} failed"
    if not done:
        raise Interrupted(f"Stopped: {summary}; the same command resumes from there.")
    written = ", ".join(map(str, files)) or "nothing"
    print(f"{summary}; written: {written}." if cells else f"Written: {written}.")
    if failed:
        sys.exit(1)
