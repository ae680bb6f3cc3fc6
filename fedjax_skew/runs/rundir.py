"""The schema of a run directory: its files, and functions to write and read them.

Files are replaced atomically, so that a reader sees either the old or the new content, and metrics
are appended line by line. No other module of the project contains a file name or parses one of
these files.
"""

import contextlib
import csv
import errno
import fcntl
import io
import json
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedjax_skew.data import client_lists
from fedjax_skew.data.partition import Partition
from fedjax_skew.simulation.columns import COLUMNS, plain

CONFIG = "config.json"
IDENTITY = "identity.json"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
PARTITION = "partition.csv"
SPLIT = "partition_seed{seed}.npz"
CLIENTS = "clients.csv"
CHECKPOINTS = "checkpoints"
FAILURE = "failure.json"
TENSORBOARD = "tensorboard"
METRICS_CSV = "metrics.csv"
LOGGERS = "loggers.json"
LOCK = ".lock"

FILES = {
    CONFIG: "every field, with the names of the objects that replace fields",
    IDENTITY: "hashes of everything that determines the results, checked on resume",
    METRICS: "one line per evaluation; COLUMNS describes the columns",
    SUMMARY: "accuracy by seed, mean and standard deviation, hashes, speed and versions",
    PARTITION: "samples by class (rows) and client (columns) of the first seed",
    SPLIT: "indices of every client's samples by seed, if save_partition",
    CLIENTS: "one row per client: samples, skew, rounds, update norm and accuracies",
    CHECKPOINTS: "orbax checkpoints, each with a digest of its files",
    FAILURE: "the reason why a cell of a table failed",
    TENSORBOARD: "TensorBoard events, if loggers contains tensorboard",
    METRICS_CSV: "the columns of metrics.jsonl averaged over seeds, if loggers contains csv",
    LOGGERS: "ids of the run in the services of loggers",
    LOCK: "the process that has locked the directory",
}

_MOST_COUNTS = 1_000_000  # Largest number of classes times clients in partition.csv.
_BLOCK = 1 << 20


def disk_is_full(error: BaseException) -> bool:
    """Returns whether an error was caused by a full disk, also if a library has wrapped it."""
    full = (errno.ENOSPC, errno.EDQUOT)
    words = [os.strerror(number) for number in full]
    return getattr(error, "errno", None) in full or any(word in str(error) for word in words)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a file atomically, so that readers see either the old or the new text."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON atomically; non-finite numbers become null."""
    write_text(path, json.dumps(plain(value), indent=2) + "\n")


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a JSON file, or an empty one if the file is missing or damaged."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def append_line(workdir: pathlib.Path, line: dict[str, Any]) -> None:
    """Appends a line of metrics and flushes the file."""
    with open(workdir / METRICS, "a") as f:
        f.write(json.dumps(plain(line)) + "\n")
        f.flush()


def read_lines(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the lines of metrics up to the first incomplete one, which may be being written."""
    lines: list[dict[str, Any]] = []
    for _, line in _parse_lines(workdir / METRICS):
        if line is None:
            break
        lines.append(line)
    return lines


def restore_lines(workdir: pathlib.Path, up_to: int, *, repair: bool) -> list[dict[str, Any]]:
    """Returns the lines of metrics up to a round from which the run continues.

    Args:
        workdir: the run directory.
        up_to: the round of the checkpoint.
        repair: whether to remove later lines, and an incomplete last line of a killed process.

    Raises:
        ValueError: if a line that is not the last one is damaged.
    """
    path = workdir / METRICS
    found = _parse_lines(path)
    damaged = [number for number, line in found[:-1] if line is None]
    lines = [line for _, line in found if line is not None and line["round"] <= up_to]
    if damaged:
        raise ValueError(
            f"line {damaged[0]} of {str(path)!r} is damaged; delete that line to continue without "
            "its evaluation."
        )
    if repair and len(lines) < len(found):
        write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
    return lines


def last_round(workdir: pathlib.Path) -> int:
    """Returns the round of the last evaluation, read from the end of the file."""
    try:
        with open(workdir / METRICS, "rb") as f:
            place, tail = f.seek(0, os.SEEK_END), b""
            while place:
                size = min(_BLOCK, place)
                place -= size
                f.seek(place)
                tail = f.read(size) + tail
                rounds = re.findall(rb'^{"round": (\d+),[^\n]*\n', tail, re.MULTILINE)
                if rounds:
                    return int(rounds[-1])
    except OSError:
        pass
    return 0


def write_partition(workdir: pathlib.Path, class_counts: np.ndarray) -> None:
    """Writes samples by class (rows) and client (columns), in the format of ``counts(path)``.

    An existing file is not replaced, and very large partitions are not written.
    """
    path = workdir / PARTITION
    if not path.exists() and class_counts.size <= _MOST_COUNTS:
        rows = (",".join(map(str, row)) for row in class_counts.T.tolist())
        write_text(path, "\n".join(rows) + "\n")


def read_partition(workdir: pathlib.Path) -> np.ndarray | None:
    """Returns the numbers of samples ``[K, C]``, or None if the file is missing or damaged."""
    try:
        rows = (workdir / PARTITION).read_text().splitlines()
        return np.array([row.split(",") for row in rows], np.int64).reshape(len(rows), -1).T
    except (OSError, ValueError):
        return None


def write_splits(
    workdir: pathlib.Path, seeds: Sequence[int], partitions: Sequence[Partition]
) -> None:
    """Writes the exact partition of every seed, in the format of ``partition=file(path=...)``."""
    for seed, partition in zip(seeds, partitions, strict=True):
        path = workdir / SPLIT.format(seed=seed)
        temporary = path.with_name(f"tmp_{path.name}")  # The suffix determines the format.
        client_lists.save_partition(temporary, partition)
        os.replace(temporary, path)


def write_clients(workdir: pathlib.Path, table: dict[str, np.ndarray]) -> None:
    """Writes one row per client and seed; non-finite numbers are left empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table)
    columns = [plain(column) for column in table.values()]
    writer.writerows(
        [f"{v:.6g}" if isinstance(v, float) else v for v in row]
        for row in zip(*columns, strict=True)
    )
    write_text(workdir / CLIENTS, buffer.getvalue())


def read_clients(workdir: pathlib.Path) -> dict[str, np.ndarray] | None:
    """Returns the columns of the table of clients, or None if it is missing or damaged."""
    try:
        with open(workdir / CLIENTS, newline="") as f:
            heads, *rows = csv.reader(f)
        values = np.array([[float(v) if v else np.nan for v in row] for row in rows])
        return dict(zip(heads, values.reshape(-1, len(heads)).T, strict=True))
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def owned(workdir: pathlib.Path) -> Iterator[None]:
    """Locks the run directory; the lock ends with the process, so that it is never stale.

    Raises:
        ValueError: if another process has locked it, or if it is not a writable directory.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / LOCK).touch()
    except OSError as error:
        if disk_is_full(error):
            raise
        raise ValueError(
            f"workdir={str(workdir)!r} cannot be used ({error.strerror}); use a writable directory."
        ) from error
    with open(workdir / LOCK, "a+") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            f.seek(0)
            owner = f.read().strip() or "another process"
            raise ValueError(
                f"workdir={str(workdir)!r} is in use by {owner}; wait for it, or choose another."
            ) from None
        f.truncate(0)
        f.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        f.flush()
        yield


def is_owned(workdir: str | os.PathLike[str]) -> bool:
    """Returns whether a process has locked the run directory."""
    try:
        with open(pathlib.Path(workdir) / LOCK) as f:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _parse_lines(path: pathlib.Path) -> list[tuple[int, dict[str, Any] | None]]:
    """Returns the lines with their numbers from 1; None for anything but a line of metrics."""
    try:
        texts = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    found: list[tuple[int, dict[str, Any] | None]] = []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        good = isinstance(line, dict) and isinstance(line.get("round"), int)
        found.append((number, line if good else None))
    return found


__all__ = ["COLUMNS", "FILES"]
