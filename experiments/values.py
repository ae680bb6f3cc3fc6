"""Measured numbers, stored separately from their runs in a CSV file, one line per number and seed.

A number is identified by its place in a paper (table or figure, row, column), the scale at which it
was measured, and its seed. None of these depends on the name of a run directory, so a file remains
valid when configurations change.

``answers.json`` in the directory of a cell says which numbers the cell answers. ``harvest``
collects the values of all finished cells of a store.
"""

import csv
import dataclasses
import io
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments import papers
from experiments.cells import Cell
from experiments.printed import Row
from fedjax_skew.metrics import curves
from fedjax_skew.runs import rundir, store

ANSWERS = "answers.json"
_WHICH = ("last", "best", "mean_last_50")


class Key(NamedTuple):
    """Identifies a number by its place in a paper, its scale and its seed."""

    name: str
    row: str
    column: str
    scale: str
    seed: int


@dataclasses.dataclass(frozen=True)
class Value:
    """One measured number.

    Attributes:
        name: the table or figure, such as ``"fedlc/table1"``.
        row: the row of the table.
        column: the column of the table.
        scale: how the run differs from the paper's recipe, such as ``"cpu rounds=300"``.
        seed: the seed of the run.
        value: the kind of number that the paper reports, in its units.
        last: accuracy after the last round; None if the number is not an accuracy over rounds.
        best: best accuracy over all rounds.
        mean_last_50: mean accuracy over the last 50 rounds.
        late: mean over the last quarter of the rounds, by which claims are judged.
        model: the network.
        rounds: number of rounds of the run.
        local: local work of one round, such as ``"5 epochs"`` or ``"10 steps"``.
        seconds: wall time of the run, which may have trained several seeds.
        command: the command that computes it.
        version: version of the package.
        note: a remark, for example that the run diverged.
    """

    name: str
    row: str
    column: str
    scale: str
    seed: int
    value: float
    last: float | None = None
    best: float | None = None
    mean_last_50: float | None = None
    late: float | None = None
    model: str = ""
    rounds: int = 0
    local: str = ""
    seconds: float = 0.0
    command: str = ""
    version: str = ""
    note: str = ""

    @property
    def key(self) -> Key:
        """Its identity; of two values with the same key, the newer one replaces the older one."""
        return Key(self.name, self.row, self.column, self.scale, self.seed)


FIELDS = tuple(field.name for field in dataclasses.fields(Value))
_FLOATS = ("value", *_WHICH, "late", "seconds")


def read(path: pathlib.Path) -> list[Value]:
    """Reads a file of values; a missing file has none.

    Raises:
        ValueError: if a line cannot be read.
    """
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as f:
        lines = list(csv.DictReader(f))
    found = []
    for number, line in enumerate(lines, 2):
        try:
            fields: dict[str, Any] = {name: line[name] for name in FIELDS}
            fields |= {name: float(line[name]) if line[name] else None for name in _FLOATS}
            fields |= {name: int(line[name]) for name in ("seed", "rounds")}
            found.append(Value(**fields))
        except (KeyError, ValueError, TypeError) as error:
            raise ValueError(f"{path}, line {number}, is not a measured value: {error}.") from None
    return found


def write(path: pathlib.Path, values: Iterable[Value]) -> None:
    """Writes values in a fixed order, so that differences between files remain small."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(FIELDS)
    for value in sorted(values, key=lambda value: value.key):
        cells = dataclasses.asdict(value)
        for name in _FLOATS:
            cells[name] = "" if cells[name] is None else f"{cells[name]:.6g}"
        writer.writerow(cells.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    rundir.write_text(path, buffer.getvalue())


def merge(*sources: Iterable[Value]) -> list[Value]:
    """Returns all values; of several with the same key, that of the last source."""
    return list({value.key: value for source in sources for value in source}.values())


def place(row: Row) -> tuple[str, str]:
    """Returns the row and column of a printed number, for a figure with its horizontal position."""
    return row.row, f"{row.column} x={row.extras['x']}".strip() if "x" in row.extras else row.column


def note_answers(cell: Cell, command: str) -> None:
    """Records in the directory of a cell which numbers it answers."""
    path = cell.directory / ANSWERS
    found = {_answer_key(answer): answer for answer in _read_answers(path)}
    paper, _ = papers.of(cell.name)
    for row in cell.run.rows:
        summary, which = paper.measured(row)
        row_key, column = place(row)
        answer = {
            "name": cell.name,
            "row": row_key,
            "column": column,
            "scale": cell.scale,
            "summary": summary,
            "which": which,
            "method": row.method,
            "setting": f"{row.dataset} {row.partition}",
            "speedup": row.metric == "speedup",
            "command": command,
        }
        found[_answer_key(answer)] = answer
    path.parent.mkdir(parents=True, exist_ok=True)
    rundir.write_json(path, {"answers": list(found.values())})


def harvest(workdir: str | pathlib.Path) -> list[Value]:
    """Returns all numbers of a store, of its finished cells and of its figures."""
    runs = []
    for path in sorted(pathlib.Path(workdir).glob(f"cells/*/{ANSWERS}")):
        record = _complete(store.read(path.parent))
        if record.finished:
            runs += [(answer, record) for answer in _read_answers(path)]
    baselines = {
        (answer["name"], answer["setting"], answer["scale"], seed): (record, i)
        for answer, record in runs
        if answer["method"] == "fedavg"
        for i, seed in enumerate(_seeds(record))
    }
    found = [value for answer, record in runs for value in _values(answer, record, baselines)]
    return merge(found, read(figure_file(workdir)))


def figure_file(workdir: str | pathlib.Path) -> pathlib.Path:
    """Returns the file in which a store keeps the numbers computed for figures."""
    return pathlib.Path(workdir) / "figure_values.csv"


def _complete(record: store.Record) -> store.Record:
    """Returns a diverged run as one that ended with its last evaluation; others unchanged."""
    summary = rundir.read_json(record.path / "summary.json") or {}
    if summary.get("status") != "diverged" or not record.lines:
        return record
    last = record.lines[-1]
    found = {"status": "finished", "diverged": True}
    found |= {"rounds": last["round"], "wall_seconds": last.get("seconds", 0.0)}
    for column, value in last.items():
        if isinstance(value, list) and not any(isinstance(one, list) for one in value):
            numbers = curves.summarize(*record.curve(column))
            found[column] = {which: {"per_seed": list(numbers[which])} for which in _WHICH}
    return dataclasses.replace(record, summary={**summary, **found})


def facts(record: store.Record) -> dict[str, Any]:
    """Returns the fields of a value that describe its run."""
    config = record.config
    steps = config["local_steps"]
    return {
        "model": config["model"],
        "rounds": int(record.summary["rounds"]),
        "local": f"{steps} steps" if steps else f"{config['local_epochs']} epochs",
        "seconds": float(record.summary["wall_seconds"]),
        "version": record.summary.get("versions", {}).get("fedjax_skew", ""),
        "note": f"diverged after round {record.summary['rounds']}"
        if record.summary.get("diverged")
        else "",
    }


def _values(
    answer: Mapping[str, Any],
    record: store.Record,
    baselines: Mapping[tuple[str, str, str, int], tuple[store.Record, int]],
) -> list[Value]:
    """Returns the values of one answer, one per seed; none if the run lacks the number."""
    found = []
    for i, seed in enumerate(_seeds(record)):
        numbers: dict[str, Any] = {}
        if answer["which"] == "rounds_to_target":
            base = baselines.get((answer["name"], answer["setting"], answer["scale"], seed))
            if base is None:
                continue
            numbers["value"] = _rounds_to_target(record, i, *base, answer["speedup"])
        else:
            for which in _WHICH:
                per_seed = record.values(answer["summary"], which)
                if i < len(per_seed):
                    numbers[which] = 100 * per_seed[i]
            if answer["which"] not in numbers:
                continue
            numbers["value"] = numbers[answer["which"]]
            numbers["late"] = _late(record, answer["summary"], i)
        found.append(
            Value(
                **{name: answer[name] for name in ("name", "row", "column", "scale", "command")},
                **numbers,
                **facts(record),
                seed=seed,
            )
        )
    return found


def _late(record: store.Record, column: str, i: int) -> float | None:
    """Returns the mean over the last quarter of the rounds, or None without a curve."""
    rounds, values = record.curve(column)
    if i >= len(values):
        return None
    return 100 * float(curves.mean_last(rounds, values[i], -(-int(rounds[-1]) // 4)))


def _rounds_to_target(
    record: store.Record, i: int, base: store.Record, base_i: int, speedup: bool
) -> float:
    """Returns the rounds until FedAvg's last accuracy is reached, at most FedAvg's rounds.

    With ``speedup``, returns the rounds of FedAvg divided by these.
    """
    total = int(base.summary["rounds"])
    target = base.values("accuracy", "last")[base_i]
    rounds, curve = record.curve("accuracy")
    own = record.path == base.path
    reached = None if own else curves.rounds_to_target(rounds, curve[i], target)
    needed = float(reached or total)
    return total / needed if speedup else needed


def _seeds(record: store.Record) -> Sequence[int]:
    first = int(record.config["seed"])
    return range(first, first + int(record.config["num_seeds"]))


def _read_answers(path: pathlib.Path) -> list[dict[str, Any]]:
    try:
        return json.loads(path.read_text())["answers"]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _answer_key(answer: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(answer[name] for name in ("name", "row", "column", "scale"))
