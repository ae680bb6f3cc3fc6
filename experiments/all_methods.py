"""Trains all methods on the same problems and tabulates accuracy and cost.

    python -m experiments.all_methods --workdir=runs/methods --data_dir=DIR
    python -m experiments.all_methods --workdir=runs/methods --data_dir=DIR \\
        --problems=mnist --methods=fedavg,fedlc,fedrod --dry_run

The problems are defined in ``configs/all_methods.py``. Every method trains with its default
hyper-parameters, in the same results store as ``experiments.sweep``. Running the same command again
resumes, and finished runs are not repeated. The results of each problem are written to
``methods_<problem>.md`` and ``.csv`` in the workdir or in ``--output``.
"""

import csv
import io
import itertools
import pathlib
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import ml_collections
from absl import flags

from configs.all_methods import PROBLEMS, get_config
from experiments import app, cells, collect, dry_run, estimate, launch
from experiments.cells import Cell
from fedjax_skew import errors, methods
from fedjax_skew.report import names
from fedjax_skew.runs.store import Record


def define_flags() -> None:
    """Defines the flags. This is not done at import because other binaries use the same names."""
    flags.DEFINE_string("workdir", None, "Root of the results store.")
    flags.DEFINE_string("output", "", "Directory for the tables; defaults to the workdir.")
    flags.DEFINE_list("problems", list(PROBLEMS), "Problems to train on.")
    flags.DEFINE_list("methods", ["all"], "Methods separated by commas, or 'all'.")
    flags.DEFINE_string("data_dir", "", "Directory of the prepared datasets.")
    flags.DEFINE_bool("dry_run", False, "List the runs and their costs, and exit.")


class Line(NamedTuple):
    """The results of one method on one problem.

    Attributes:
        method: the name of the method.
        status: ``finished``, or the reason why there are no numbers.
        accuracy: accuracy of the global model after the last round, in percent.
        best: best accuracy over all evaluations, in percent.
        own: mean accuracy of the clients' own models on their label distributions, in percent, or
            None for methods without personal models.
        worst: mean of ``own`` over the worst decile of clients, or None.
        work: operations of all rounds, as counted by ``experiments.estimate``.
        seconds: shortest measured time of a round, including evaluation.
        kept: bytes that a client keeps between rounds.
        sent: bytes sent in both directions over all rounds.
        server: the kinds of server data that the method trains on.
    """

    method: str
    status: str
    accuracy: float | None = None
    best: float | None = None
    own: float | None = None
    worst: float | None = None
    work: float | None = None
    seconds: float | None = None
    kept: int | None = None
    sent: float | None = None
    server: str = ""


def main(argv: Sequence[str]) -> None:
    """Plans the runs, trains and writes the tables."""
    flag = flags.FLAGS
    if not flag.workdir:
        raise ValueError("workdir is not set; choose the results store with --workdir=DIR.")
    workdir = pathlib.Path(flag.workdir)
    planned = {
        problem: plan(problem, workdir, flag.methods, flag.data_dir) for problem in flag.problems
    }
    wanted = [cell for own in planned.values() for cell in own]
    if flag.dry_run:
        print(dry_run.describe("All methods", wanted))
        return
    done = launch.run(wanted)
    files: list[pathlib.Path] = []
    for problem, own in planned.items():
        lines = [line(cell.record(), cell.config) for cell in own]
        page = to_markdown(lines, own, command(problem, flag.methods))
        texts = {f"methods_{problem}.md": page, f"methods_{problem}.csv": to_csv(lines)}
        files += collect.write_texts(pathlib.Path(flag.output or workdir), texts)
    launch.finish(wanted, files, done)


def plan(
    problem: str, workdir: pathlib.Path, chosen: Sequence[str] = ("all",), data_dir: str = ""
) -> list[Cell]:
    """Returns the runs of a problem. FedAvg comes first because costs are relative to it."""
    chosen = list(methods.REGISTRY) if list(chosen) == ["all"] else chosen
    for name in chosen:
        for part in name.split("+"):
            if part not in methods.REGISTRY:
                raise errors.unknown("methods", part, methods.REGISTRY)
    if problem not in PROBLEMS:
        raise errors.unknown("problems", problem, PROBLEMS)
    config = get_config(problem)
    config.dataset.data_dir = data_dir
    points = [{"method": name} for name in dict.fromkeys(["fedavg", *chosen])]
    return [cell for _, own in cells.plan_points(config, points, workdir) for cell in own]


def line(record: Record, config: ml_collections.ConfigDict) -> Line:
    """Returns the results of one run."""
    method = config.method
    if not record.finished:
        return Line(method, f"failed: {record.failure}" if record.failure else record.status)
    summary = record.summary

    def percent(column: str, which: str = "last") -> float | None:
        found = record.values(column, which)
        return 100 * found[0] if found else None

    return Line(
        method=method,
        status="finished",
        accuracy=percent("accuracy"),
        best=percent("accuracy", "best"),
        own=percent("personal_local_accuracy"),
        worst=percent("personal_local_worst_decile"),
        work=estimate.cost(config).flops,
        seconds=seconds_per_round(record),
        kept=summary["client_state_bytes"],
        sent=summary["bytes_up"][0] + summary["bytes_down"][0],
        server=" and ".join(summary["server_data"]),
    )


def seconds_per_round(record: Record) -> float:
    """Returns the shortest time per round between evaluations, the least disturbed measurement."""
    lines = [{"round": 0, "seconds": 0.0}, *record.lines]
    return min(
        (after["seconds"] - before["seconds"]) / (after["round"] - before["round"])
        for before, after in itertools.pairwise(lines)
    )


def to_markdown(lines: Sequence[Line], own: Sequence[Cell], command: str) -> str:
    """Returns a page with one row per method, sorted by accuracy."""
    config = own[0].config
    base = lines[0].work
    heads = ["method", "accuracy", "best", "own models (worst decile)", "operations"]
    heads += ["kept by a client (MB)", "sent (MB)", "server data"]
    rows = [heads, ["---"] * len(heads)]
    for row in sorted(lines, key=lambda row: -(row.accuracy or 0.0)):
        label = f"{names.method(row.method)} (`{row.method}`)"
        if row.status != "finished":
            rows.append([label, row.status, *[""] * (len(heads) - 2)])
            continue
        assert row.work is not None and row.kept is not None and row.sent is not None
        rows.append(
            [
                label,
                _number(row.accuracy),
                _number(row.best),
                "" if row.own is None else f"{row.own:.2f} ({row.worst:.2f})",
                f"{row.work / base:.2f}x" if base else f"{row.work:.1e}",
                f"{row.kept / 1e6:.2f}",
                f"{row.sent / 1e6:.1f}",
                row.server,
            ]
        )
    clients = round(config.num_clients * config.participation)
    text = [
        f"# All methods: {names.dataset(config.dataset.name)}, `{config.partition}`",
        f"    {command}",
        f"`{config.model}`, {clients} of {config.num_clients} clients in each of {config.rounds} "
        f"rounds, {config.local_epochs} local epochs, batches of {config.batch_size}, SGD "
        f"{config.client_lr:g} with momentum {config.momentum:g}, default hyper-parameters, seed "
        f"{config.seed}. Test accuracy in percent: of the global model after the last round, the "
        "best of all evaluations, and for methods with personal models the mean over clients of "
        "their own model's accuracy on the client's label distribution. Operations are counted in "
        "the traced programs, relative to FedAvg's; a client keeps its state between rounds; "
        "megabytes are sent in both directions in all rounds. The CSV file also has the shortest "
        "measured time of a round.",
        "\n".join(f"| {' | '.join(row)} |" for row in rows),
        *cells.machines(cell.record() for cell in own),
    ]
    return "\n\n".join(text) + "\n"


def to_csv(lines: Sequence[Line]) -> str:
    """Returns one row per method with all numbers."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(Line._fields)
    writer.writerows(["" if value is None else value for value in row] for row in lines)
    return buffer.getvalue()


def command(problem: str, chosen: Sequence[str]) -> str:
    """Returns the command that produces a table."""
    words = ["python", "-m", "experiments.all_methods", f"--problems={problem}"]
    if list(chosen) != ["all"]:
        words.append(f"--methods={','.join(chosen)}")
    return shlex.join([*words, "--data_dir=DIR", "--workdir=DIR"])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    define_flags()
    app.run(main)
