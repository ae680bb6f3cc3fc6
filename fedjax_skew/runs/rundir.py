"""The files of a run: written whole or not at all, owned by one process."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedjax_skew.config import default_config, lookup, may_change
from fedjax_skew.simulation.columns import plain

MOST_COUNTS = 1_000_000  # Classes times clients that are still written to partition.csv.


def disk_is_full(error: BaseException) -> bool:
    """Whether an error says so; libraries wrap the operating system's in kinds of their own."""
    full = (errno.ENOSPC, errno.EDQUOT)
    words = [os.strerror(number) for number in full]
    return getattr(error, "errno", None) in full or any(word in str(error) for word in words)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a file through a temporary one, so that readers see the old or the new text."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON atomically; numbers that are not finite become null."""
    write_text(path, json.dumps(plain(value), indent=2) + "\n")


def read_json(path: pathlib.Path) -> Any:
    """The content of a JSON file, or None if it is absent or damaged."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def owned(workdir: pathlib.Path) -> Iterator[None]:
    """Holds the run directory; the lock dies with the process, so it is never stale.

    Raises:
        ValueError: if another process holds it, or it is no directory that can be written.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / ".lock").touch()
    except OSError as error:
        if disk_is_full(error):
            raise
        raise ValueError(
            f"workdir={str(workdir)!r} cannot be used ({error.strerror}); name a directory that "
            "can be written."
        ) from error
    with open(workdir / ".lock", "a+") as f:
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


def check_config(workdir: pathlib.Path, config: dict[str, Any]) -> None:
    """Compares with the configuration the directory was made with, then stores the new one.

    Raises:
        ValueError: naming the first field that may not change, its old and its new value.
    """
    path = workdir / "config.json"
    config = plain(config)
    if path.exists():
        try:
            old = json.loads(path.read_text())
        except ValueError:
            old = config  # A damaged file says nothing; the checkpoint's shapes still protect us.
        for field in differences(old, config):
            if not may_change(field, config):
                raise ValueError(
                    f"{field}={_get(config, field)!r} differs from {_get(old, field)!r}, with "
                    f"which workdir={str(workdir)!r} was started; use the old value or another "
                    "workdir."
                )
    write_json(path, config)


def differences(old: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """Fields of a configuration that an older file says otherwise.

    A field the file lacks had its default value when it was written, and the hyper-parameters of
    methods that are not used say nothing.
    """
    old = _fill(plain(old), plain(default_config().to_dict()))
    used = config["method"].split("+")
    return [
        field
        for field in _differences(old, plain(config))
        if not field.startswith("hparams.") or field.split(".")[1] in used
    ]


def read_lines(path: pathlib.Path, up_to: int, *, repair: bool = True) -> list[dict[str, Any]]:
    """Lines of ``metrics.jsonl`` up to a round; ``repair`` removes later or torn ones."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            break
        if line["round"] > up_to:
            break
        lines.append(line)
    if repair:
        write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
    return lines


def append_line(path: pathlib.Path, line: dict[str, Any]) -> dict[str, Any]:
    """Adds a line to ``metrics.jsonl`` and hands it to the operating system at once."""
    line = plain(line)
    with open(path, "a") as f:
        f.write(json.dumps(line) + "\n")
        f.flush()
    return line


def write_partition(workdir: pathlib.Path, class_counts: np.ndarray) -> None:
    """Writes samples by class (rows) and client (columns), as ``counts(path)`` reads them.

    Very large partitions, and one that is there already, are not written.
    """
    path = workdir / "partition.csv"
    if not path.exists() and class_counts.size <= MOST_COUNTS:
        rows = (",".join(map(str, row)) for row in class_counts.T.tolist())
        write_text(path, "\n".join(rows) + "\n")


def _fill(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    filled = {**defaults, **values}
    for key, value in defaults.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            filled[key] = _fill(values[key], value)
    return filled


def _differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key in sorted(set(old) | set(new)):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(prefix + key)
    return found


def _get(config: dict[str, Any], field: str) -> Any:
    try:
        return lookup(config, field)
    except KeyError:
        return None
