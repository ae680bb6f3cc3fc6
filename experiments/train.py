"""Trains one configuration.

    python -m experiments.train --config=configs/quickstart.py --workdir=runs/first \\
        --config.method=fedlc --config.rounds=50

Names of what exists: ``--list=methods|datasets|partitions|models``.
"""

from collections.abc import Sequence

import jax
from absl import flags
from ml_collections import config_flags

from experiments import app
from fedjax_skew import methods, models
from fedjax_skew.data import partition, source
from fedjax_skew.train import train_and_evaluate

_CONFIG = config_flags.DEFINE_config_file(
    "config", str(app.config_path("configs/quickstart.py")), "What to run."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the run.")
_LIST = flags.DEFINE_enum(
    "list", None, ["methods", "datasets", "partitions", "models"], "Prints names and ends."
)


def main(argv: Sequence[str]) -> None:
    """Lists names, or trains."""
    if _LIST.value:
        rooms = {"methods": methods, "datasets": source, "partitions": partition, "models": models}
        for name, text in rooms[_LIST.value].names().items():
            print(f"{name:24s} {text}")
        return
    if not _WORKDIR.value:
        raise ValueError("workdir is not set; name the directory of the run with --workdir=DIR.")
    devices = jax.devices()
    print(
        f"process {jax.process_index()} of {jax.process_count()}, {len(devices)} x "
        f"{devices[0].device_kind}"
    )
    result = train_and_evaluate(_CONFIG.value, _WORKDIR.value)
    if result.pop("resumed_finished", False):
        print(f"{_WORKDIR.value} is finished already; nothing to do.")
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
