"""Exact partitions as lists of sample indices, one per client, in memory and in files.

A JSON file contains a list of lists, or an object with one list per client. An ``.npz`` file
contains one integer array per client, or ``order`` and ``offsets`` such that client k has
``order[offsets[k]:offsets[k + 1]]``. Named clients are sorted by the number in their name, or keep
the order of the file unless every name has a distinct number. Nothing in a file is executed.
"""

import json
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

_FORMATS = "JSON with one list of indices per client, or .npz with one integer array per client"
_NUMBER = re.compile(r"\d+")


class _Lists(Protocol):
    """The arrays of a partition that are saved."""

    @property
    def order(self) -> np.ndarray: ...
    @property
    def offsets(self) -> np.ndarray: ...
    @property
    def labelled(self) -> np.ndarray: ...
    @property
    def unlabelled(self) -> np.ndarray: ...


def assign(lists: Sequence[Any], num_samples: int, what: str) -> np.ndarray:
    """Returns the client of every sample.

    Args:
        lists: sample indices of every client, integers in ``[0, num_samples)``.
        num_samples: number of training samples.
        what: the origin of the lists, for error messages.

    Returns:
        int32 ``[num_samples]``, -1 for a sample that is not in any list.

    Raises:
        ValueError: if a list is invalid; the message names the client and the index.
    """
    if not len(lists):
        raise ValueError(f"{what} has no client; at least one is needed.")
    arrays = []
    for k, entries in enumerate(lists):
        indices = _integers(entries)
        if indices is None:
            raise ValueError(f"{what} must list whole numbers for client {k}.")
        if len(indices) == 0:
            raise ValueError(f"{what} lists no sample for client {k}; every client needs one.")
        arrays.append(indices)
    indices = np.concatenate(arrays)
    owners = np.repeat(np.arange(len(arrays), dtype=np.int32), [len(a) for a in arrays])
    outside = (indices < 0) | (indices >= num_samples)
    if outside.any():
        place = outside.argmax()
        raise ValueError(
            f"{what} lists the index {indices[place]} for client {owners[place]}; the training set "
            f"has the indices 0..{num_samples - 1}."
        )
    times = np.bincount(indices, minlength=num_samples)
    if times.max() > 1:
        index = times.argmax()
        holders = owners[indices == index]
        raise ValueError(
            f"{what} lists the index {index} {times[index]} times, for clients {holders[0]} and "
            f"{holders[1]}; a sample belongs to at most one client."
        )
    clients = np.full(num_samples, -1, np.int32)
    clients[indices] = owners
    return clients


def read(path: str | os.PathLike[str]) -> list[Any]:
    """Reads the index lists of a file without validating them, which :func:`assign` does.

    Raises:
        ValueError: if the file cannot be read or has an unknown format.
    """
    place = Path(path).expanduser()
    try:
        content = place.read_bytes()
    except OSError as error:
        raise ValueError(
            f"partition file {os.fspath(path)!r} cannot be read ({error.strerror or error})."
        ) from None
    lists = _from_npz(place) if content[:2] == b"PK" else _from_json(content)
    if lists is None:
        raise ValueError(
            f"partition file {os.fspath(path)!r} has an unknown format; allowed: {_FORMATS}."
        )
    return lists


def save_partition(path: str | os.PathLike[str], partition: _Lists) -> None:
    """Writes a partition to a ``.json`` or ``.npz`` file that ``file(path=...)`` can read.

    JSON files contain one list of training sample indices per client. ``.npz`` files contain
    ``order``, ``offsets``, and the server's ``labelled`` and ``unlabelled`` samples.

    Args:
        path: the file, whose suffix determines the format.
        partition: a :class:`~fedjax_skew.data.partition.Partition`.
    """
    place = Path(path).expanduser()
    if place.suffix == ".json":
        clients = np.split(partition.order, partition.offsets[1:-1])
        lines = ",\n".join(json.dumps(indices.tolist()) for indices in clients)
        place.write_text(f"[\n{lines}\n]\n")
    elif place.suffix == ".npz":
        fields = ("order", "offsets", "labelled", "unlabelled")
        np.savez_compressed(place, **{field: getattr(partition, field) for field in fields})
    else:
        raise ValueError(f"path={os.fspath(path)!r} must end in .json or .npz.")


def _from_json(content: bytes) -> list[Any] | None:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(data, dict):
        data = [data[name] for name in _by_number(list(data))]
    if not isinstance(data, list) or not all(isinstance(entry, list) for entry in data):
        return None
    return data


def _from_npz(path: Path) -> list[Any] | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    if {"order", "offsets"} <= set(arrays):
        order, offsets = arrays["order"], _integers(arrays["offsets"])
        if offsets is None or len(offsets) < 2 or order.ndim != 1:
            return None
        if offsets[0] != 0 or offsets[-1] != len(order) or (np.diff(offsets) < 0).any():
            return None
        return np.split(order, offsets[1:-1])
    return [arrays[name] for name in _by_number(list(arrays))]


def _by_number(names: list[str]) -> list[str]:
    numbers = {name: int(found[-1]) for name in names if (found := _NUMBER.findall(name))}
    if len(set(numbers.values())) < len(names):
        return names
    return sorted(names, key=numbers.__getitem__)


def _integers(entries: Any) -> np.ndarray | None:
    """Converts one-dimensional integers to int64; returns None for anything else."""
    if isinstance(entries, (str, bytes)):
        return None
    try:
        array = np.asarray(entries)
    except (ValueError, OverflowError):
        return None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        return None
    return array.astype(np.int64)
