"""Trains a configuration with many values of its fields, or with many methods.

    python -m experiments.sweep --config=configs/quickstart.py --workdir=runs/sweep \\
        --config.method=fedlc --config.dataset.validation=0.1 \\
        --grid='client_lr=0.01,0.03,0.1; hparams.fedlc.tau=0.1,0.5,1'

    python -m experiments.sweep --config=configs/mnist.py --workdir=runs/mnist \\
        --config.dataset.data_dir=DIR --methods=fedavg,fedlc,scaffold

``--random=20`` draws 20 points per method instead of taking all combinations; a field may then be
a range such as ``client_lr=log_uniform(0.001, 1)``. ``--methods=all`` takes every method; those
that train on server data need ``--config.server_data.labelled`` and ``.unlabelled``, which keep
the same samples from the clients of all methods.

Every point is a run directory below ``workdir/cells``, in the same store as tables and figures. The
same command resumes where it stopped, and a larger grid computes only what is new. The results
are ``sweep.md``, ``sweep.csv`` (one row per point and seed) and pictures. With
``dataset.validation`` above 0, points are selected on that part of the training set. The table has
the megabytes that were sent, and with ``--target=80`` those that were needed to reach 80 %.
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
    "methods", None, "Methods separated by commas, with + for combinations; or all."
)
_RANDOM = flags.DEFINE_integer(
    "random", 0, "Number of random points per method; 0 takes all combinations.", lower_bound=0
)
_RANDOM_SEED = flags.DEFINE_integer("random_seed", 0, "Seed of random points.", lower_bound=0)
_REPORTED = flags.DEFINE_enum(
    "reported", "last", sweep_results.REPORTED, "Which accuracy of a run to report."
)
_TARGET = flags.DEFINE_float(
    "target",
    0.0,
    "A test accuracy in percent; the table says how many megabytes it takes.",
    lower_bound=0,
    upper_bound=100,
)
_SPLIT = flags.DEFINE_bool("split_seeds", False, "Make every seed a separate run.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "List the runs and their costs, and exit.")
_DIRECTORIES = ("workdir", "config.dataset.data_dir")
_OF_THE_MACHINE = ("parallel", "jobs", "executor")


def main(argv: Sequence[str]) -> None:
    """Plans, runs and renders."""
    if not _WORKDIR.value:
        raise ValueError("workdir is not set; set the directory of the sweep with --workdir=DIR.")
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
    """The swept fields without the method, and the methods.

    Args:
        config: the configuration, for its method.
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
    """A command of this program, without what belongs to a machine."""
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
