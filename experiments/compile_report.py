"""Compiles a configuration for a device that need not be present; reports memory, work and time.

    python -m experiments.compile_report --target=a100 --config=configs/mnist.py
    python -m experiments.compile_report --target=v5e --config=configs/mnist.py --fit
    python -m experiments.compile_report --target=h100 --table=fedlf/table1

Neither data nor a driver is needed, only the compiler of the target: ``pip install
'fedjax_skew[compile]'``. Nothing is executed, so times are estimates; see ``experiments.roofline``.
"""

import csv
import os
import pathlib
from collections.abc import Mapping, Sequence

import jax
from absl import flags
from ml_collections import config_flags

from experiments import app, compiled
from experiments.accelerators import ACCELERATORS

# Reports that agree in these columns describe the same program.
_KEYS = (
    "table", "only", "target", "devices", "model", "method", "conv_impl", "clients_per_chunk",
    "chosen", "note",
)  # fmt: skip


def main(argv: Sequence[str]) -> None:
    """Prints the report and, if a file is given, adds it to the file."""
    # The compilers must not look for accelerators, which need not be present.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", False)
    os.environ |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1"}
    os.environ |= {"TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost"}
    config = _CONFIG.value
    found: list[compiled.Report | compiled.TableReport] = []
    if _TABLE.value:
        found += compiled.report_table(
            _TABLE.value, _TARGET.value, only=_ONLY.value, num_devices=config.num_devices
        )
    else:
        found.append(compiled.report(config, _TARGET.value, fit=_FIT.value))
    for row in (compiled.words(report) | {"note": _NOTE.value} for report in found):
        for name, value in row.items():
            print(f"{name:20s} {value}")
        if _SAVE.value:
            save(pathlib.Path(_SAVE.value), row)


def save(path: pathlib.Path, row: Mapping[str, str]) -> None:
    """Adds a row to a CSV file, replacing an existing row of the same program."""
    rows = []
    if path.exists():
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    rows = [old for old in rows if any(old.get(key) != row.get(key) for key in _KEYS)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, row])


if __name__ == "__main__":
    _TARGET = flags.DEFINE_enum("target", "a100", list(ACCELERATORS), "Device to compile for.")
    _CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration of the run.")
    _TABLE = flags.DEFINE_string("table", None, "Table to estimate instead of a configuration.")
    _ONLY = flags.DEFINE_string("only", "", "Cells of the table, as in experiments.reproduce.")
    _FIT = flags.DEFINE_bool("fit", False, "Find the largest clients_per_chunk that fits.")
    _SAVE = flags.DEFINE_string("save", None, "CSV file to add the report to.")
    _NOTE = flags.DEFINE_string("note", "", "Remark about the program, written to the file.")
    app.run(main)
