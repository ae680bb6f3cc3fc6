"""Trains one configuration.

    python -m experiments.train --config=configs/quickstart.py --workdir=runs/first \\
        --config.method=fedlc --config.rounds=50

``--list=methods|datasets|partitions|models|fields`` lists the available names.

To distribute one run over several processes, each with its own devices, start the same command in
each of them with ``--coordinator=HOST:PORT --num_processes=N --process_id=I``, or with
``--distributed`` if JAX supports the scheduler (Slurm, Open MPI, Kubernetes, Cloud TPU). All
processes read the data and must be able to access the workdir. Process 0 writes the results, and
all processes write checkpoints.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import jax
from absl import flags
from ml_collections import config_flags

from experiments import app
from fedjax_skew import config, methods, models
from fedjax_skew.data import datasets, partition
from fedjax_skew.report import heatmaps, style
from fedjax_skew.runs import rundir
from fedjax_skew.runs.train import train_and_evaluate

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Configuration file; default configs/quickstart.py."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the run.")
_LIST = flags.DEFINE_enum(
    "list",
    None,
    ["methods", "datasets", "partitions", "models", "fields"],
    "List names with descriptions, and exit.",
)
_COORDINATOR = flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Index of this process.", lower_bound=0)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Number of processes.", lower_bound=1)
_DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "Let JAX ask the scheduler for the three values above."
)


def main(argv: Sequence[str]) -> None:
    """Lists names, or trains a configuration."""
    if _LIST.value:
        registries = {
            "methods": methods,
            "datasets": datasets,
            "partitions": partition,
            "models": models,
            "fields": config,
        }
        for name, text in registries[_LIST.value].names().items():
            print(f"{name:24s} {text}")
        return
    if not _WORKDIR.value:
        raise ValueError("workdir is not set; choose the directory of the run with --workdir=DIR.")
    join_processes()
    devices = jax.devices()
    print(
        f"process {jax.process_index()} of {jax.process_count()}, {len(devices)} x "
        f"{devices[0].device_kind}"
    )
    result = train_and_evaluate(_CONFIG.value, _WORKDIR.value)
    if jax.process_index() == 0:
        draw_partition(pathlib.Path(_WORKDIR.value), _CONFIG.value.figures)
        report(result)


def draw_partition(workdir: pathlib.Path, wanted: bool) -> None:
    """Draws ``partition.png`` from ``partition.csv`` unless it exists."""
    counts = rundir.read_partition(workdir)
    if wanted and counts is not None and not (workdir / "partition.png").exists():
        style.save(heatmaps.partitions({"": counts}), workdir / "partition")


def join_processes() -> None:
    """Joins a distributed run if the flags request it; must be called before JAX uses devices."""
    given = {
        "coordinator": _COORDINATOR.value,
        "num_processes": _NUM_PROCESSES.value,
        "process_id": _PROCESS_ID.value,
    }
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given) and not _DISTRIBUTED.value:
        return
    if missing and not _DISTRIBUTED.value:
        raise ValueError(
            f"{missing[0]} is not set; coordinator, num_processes and process_id must be set "
            "together."
        )
    try:
        jax.distributed.initialize(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"The processes cannot connect ({' '.join(str(error).split())}); set them with "
            "--coordinator=HOST:PORT --num_processes=N --process_id=I."
        ) from None


def report(result: dict[str, Any]) -> None:
    """Prints the results of a run."""
    if result.pop("resumed_finished", False):
        print(f"{_WORKDIR.value} is already finished; nothing to do.")
    if result["nonfinite_clients"]:
        print(f"{result['nonfinite_clients']} client updates were not finite")
    accuracy = result["accuracy"]
    for name in ("last", "best", "mean_last_50"):
        std = accuracy[name]["std"]
        spread = f" +- {100 * std:.2f}" if std is not None else ""
        print(f"accuracy {name:12s} {100 * accuracy[name]['mean']:.2f}{spread} %")
    print(
        f"{result['samples_per_second']:.0f} samples/s, {result['wall_seconds']:.1f} s, compiled "
        f"in {result['compile_seconds']:.1f} s; results in {_WORKDIR.value}"
    )


if __name__ == "__main__":
    app.run(main)
