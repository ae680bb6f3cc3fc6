"""Trains a configuration with several values of its fields, or with several methods.

    python -m experiments.sweep --config=configs/quickstart.py --workdir=runs/sweep \\
        --config.method=fedlc --config.dataset.validation=0.1 \\
        --grid='client_lr=0.01,0.03,0.1; hparams.fedlc.tau=0.1,0.5,1'

    python -m experiments.sweep --config=configs/mnist.py --workdir=runs/mnist \\
        --config.dataset.data_dir=DIR --methods=fedavg,fedlc,scaffold

``--random=20`` draws 20 points per method instead of taking all combinations; a field may then be
a range such as ``client_lr=log_uniform(0.001, 1)``. ``--methods=all`` takes every method. Methods
that train on server data need ``--config.server_data.labelled`` and ``.unlabelled``; the samples
of the server are withheld from the clients of all methods.

Every point is a run directory below ``workdir/cells``, in the same store as tables and figures.
Running the same command again resumes, and a larger grid computes only the new points. The results
are ``sweep.md``, ``sweep.csv`` (one row per point and seed) and pictures. With
``dataset.validation`` above 0, points are selected on that part of the training set. The table
shows the megabytes that were sent and, with ``--target=80``, those needed to reach 80 %.
"""

import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import ml_collections
from absl import flags
from ml_collections import config_flags

from experiments import (
    app,
    dry_run,
    grid,
    launch,
    sweep_pictures,
    sweep_results,
    sweep_tables,
)
from experiments.cells import plan_points
from fedjax_skew import methods

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Configuration file; default configs/quickstart.py."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Root of the results store.")
_GRID = flags.DEFINE_string("grid", "", "Values by field: 'client_lr=0.01,0.1; momentum=0,0.9'.")
_METHODS = flags.DEFINE_string(
    "methods", None, "Methods separated by commas, with + for combinations, or 'all'."
)
_RANDOM = flags.DEFINE_integer(
    "random", 0, "Number of random points per method; 0 takes all combinations.", lower_bound=0
)
_RANDOM_SEED = flags.DEFINE_integer("random_seed", 0, "Seed of the random points.", lower_bound=0)
_REPORTED = flags.DEFINE_enum(
    "reported", "last", sweep_results.REPORTED, "The accuracy of a run to report."
)
_TARGET = flags.DEFINE_float(
    "target",
    0.0,
    "Test accuracy in percent; the table shows the megabytes needed to reach it.",
    lower_bound=0,
    upper_bound=100,
)
_SPLIT = flags.DEFINE_bool("split_seeds", False, "Make every seed a separate run.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "List the runs and their costs, and exit.")
_DIRECTORIES = ("workdir", "config.dataset.data_dir")
_OF_THE_MACHINE = ("parallel", "jobs", "executor")


def main(argv: Sequence[str]) -> None:
    """Plans the runs, trains and writes tables and pictures."""
    if not _WORKDIR.value:
        raise ValueError("workdir is not set; choose the results store with --workdir=DIR.")
    axes, names = swept(_CONFIG.value, _GRID.value, _METHODS.value, _RANDOM.value)
    points = grid.points(axes, names, random=_RANDOM.value, seed=_RANDOM_SEED.value)
    planned = plan_points(_CONFIG.value, points, pathlib.Path(_WORKDIR.value), _SPLIT.value)
    cells = list({cell.directory: cell for _, own in planned for cell in own}.values())
    if _DRY_RUN.value:
        print(dry_run.describe("The sweep", cells))
        return
    done = launch.run(cells)
    found = sweep_results.Sweep(
        fields=(*(["method"] if len(names) > 1 else []), *axes),
        results=tuple(
            sweep_results.Result(point, tuple(cell.record() for cell in own))
            for point, own in planned
        ),
        reported=_REPORTED.value,
        scattered=bool(_RANDOM.value),
        target=_TARGET.value,
    )
    workdir = pathlib.Path(_WORKDIR.value)
    words = command(sys.argv[1:])
    files = [*sweep_tables.write(found, workdir, words), *sweep_pictures.write(found, workdir)]
    print(sweep_tables.to_markdown(found, words))
    launch.finish(cells, files, done)


def swept(
    config: ml_collections.ConfigDict, text: str, names: str | None, random: int = 0
) -> tuple[dict[str, grid.Axis], list[str]]:
    """Returns the swept fields without the method, and the methods.

    Args:
        config: the configuration, whose method is used if no other is given.
        text: the grid.
        names: methods separated by commas, ``all``, or None.
        random: the number of random points.
    """
    axes = grid.parse(text)
    listed: Any = axes.pop("method", None)
    if listed is not None and names is not None:
        raise ValueError(f"methods={names!r} is incompatible with method= in the grid.")
    if names is not None:
        listed = tuple(name.strip() for name in names.split(",") if name.strip())
        if not listed:
            raise ValueError("methods='' names no method; give names separated by commas, or all.")
        if listed == ("all",):
            listed = tuple(sorted(methods.REGISTRY))
    if not axes and (listed is None or random):
        raise ValueError(
            f"grid={text!r} sweeps no field; give --grid='client_lr=0.01,0.1', or methods alone as "
            "in --methods=fedavg,fedlc."
        )
    return axes, list(listed) if listed else [config.method]


def command(arguments: Sequence[str]) -> str:
    """Returns the command of this sweep without the paths and settings of a machine."""
    words = []
    for word in arguments:
        name, _, _ = word.partition("=")
        if name.removeprefix("--") in _DIRECTORIES:
            word = f"{name}=DIR"
        if name.removeprefix("--") not in _OF_THE_MACHINE:
            words.append(word)
    return shlex.join(["python", "-m", "experiments.sweep", *words])


if __name__ == "__main__":
    app.run(main)
