"""Trains many methods on one configuration and prints their accuracies.

    python -m experiments.compare --config=configs/mnist.py --workdir=runs/mnist \\
        --config.dataset.data_dir=DIR --methods=all

Methods that need data on the server get 2 % of the training set for each kind they need, and are
marked; the clients of all methods share one partition of the rest. Finished methods are not run
again.
"""

import pathlib
from collections.abc import Sequence

from absl import flags
from ml_collections import config_flags

from experiments import app
from fedjax_skew import methods
from fedjax_skew.runs import rundir
from fedjax_skew.runs.train import Diverged, train_and_evaluate

_CONFIG = config_flags.DEFINE_config_file("config", None, "What to run; configs/quickstart.py.")
_WORKDIR = flags.DEFINE_string("workdir", "runs/compare", "One directory a method goes here.")
_METHODS = flags.DEFINE_list("methods", ["all"], "Names of methods or combinations, or all.")
_SHARE = flags.DEFINE_float("server_share", 0.02, "Share of the training set the server gets.")


def configure(config, name: str, share: float):
    """The configuration of one method; all of them hold the same samples back."""
    config = config.copy_and_resolve_references()
    config.method = name
    config.server_data.labelled = share
    config.server_data.unlabelled = share
    return config


def percent(result: dict, name: str) -> str:
    """Mean and standard deviation over seeds of one accuracy."""
    found = result["accuracy"][name]
    spread = "" if found["std"] is None else f" +- {100 * found['std']:.2f}"
    return f"{100 * found['mean']:.2f}{spread}"


def main(argv: Sequence[str]) -> None:
    """Trains every method and writes ``table.md``."""
    names = sorted(methods.REGISTRY) if _METHODS.value == ["all"] else _METHODS.value
    rows = ["| method | best | last | seconds | server data |", "|---|---|---|---|---|"]
    for name in names:
        config = configure(_CONFIG.value, name, _SHARE.value)
        try:
            result = train_and_evaluate(config, pathlib.Path(_WORKDIR.value) / name)
        except (Diverged, ValueError) as error:
            rows.append(f"| {name} | failed: {error} | | | |")
        else:
            used = " and ".join(result["server_data"])
            rows.append(
                f"| {name} | {percent(result, 'best')} | {percent(result, 'last')} "
                f"| {result['wall_seconds']:.0f} | {used} |"
            )
        print(rows[-1], flush=True)
        rundir.write_text(pathlib.Path(_WORKDIR.value) / "table.md", "\n".join(rows) + "\n")
    print("\n".join(rows))


if __name__ == "__main__":
    app.run(main)
