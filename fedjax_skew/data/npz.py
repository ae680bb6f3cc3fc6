"""Datasets in user-provided ``.npz`` files.

The keys are ``x_train``, ``y_train``, ``x_test``, ``y_test`` and, if the data has natural clients,
``client_ids`` (one integer per training sample). The arrays are converted as by
:meth:`fedjax_skew.data.dataset.Dataset.from_arrays`. Nothing in the file is executed: arrays of
Python objects are rejected.
"""

import os
import zipfile
import zlib
from typing import Any

import numpy as np

from fedjax_skew.data.dataset import Dataset

_KEYS = ("x_train", "y_train", "x_test", "y_test")
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def load(path: str | os.PathLike[str] | None, num_classes: int | None = None) -> Dataset:
    """Reads an ``.npz`` file.

    Args:
        path: the file.
        num_classes: number of classes; one more than the largest label by default.

    Raises:
        ValueError: if the file cannot be read or an array is invalid.
    """
    if path is None or not os.fspath(path):
        raise ValueError(
            "dataset.path is empty; dataset.name='npz' needs the path of an .npz file."
        )
    path = os.path.expanduser(os.fspath(path))
    if not os.path.isfile(path):
        raise ValueError(
            f"dataset.path={path!r} is not a file; write one with "
            "numpy.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)."
        )
    arrays = _read(path)
    try:
        return Dataset.from_arrays(**arrays, num_classes=num_classes, name="npz")
    except ValueError as error:
        raise ValueError(f"In dataset.path={path!r}: {error}") from None


def _read(path: str) -> dict[str, Any]:
    # The file is opened here because np.load leaves it open when the archive is broken.
    with open(path, "rb") as stream:
        try:
            archive = np.load(stream, allow_pickle=False)
        except _UNREADABLE as error:
            raise ValueError(
                f"dataset.path={path!r} cannot be read as an .npz file ({_one_line(error)})."
            ) from None
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError(
                f"dataset.path={path!r} holds a single array; an .npz file with "
                f"{', '.join(_KEYS)} is needed."
            )
        with archive:
            missing = [key for key in _KEYS if key not in archive.files]
            if missing:
                found = ", ".join(sorted(archive.files)[:10]) or "nothing"
                raise ValueError(
                    f"dataset.path={path!r} lacks {', '.join(missing)}; needed: "
                    f"{', '.join(_KEYS)} (and optionally client_ids), found: {found}."
                )
            wanted = [key for key in (*_KEYS, "client_ids") if key in archive.files]
            return {key: _member(path, archive, key) for key in wanted}


def _member(path: str, archive: Any, key: str) -> np.ndarray:
    try:
        array = archive[key]
    except _UNREADABLE as error:
        if "allow_pickle" in str(error):
            reason = "it holds Python objects, which are never loaded; save a numeric array"
        else:
            reason = _one_line(error)
        raise ValueError(f"{key} in dataset.path={path!r} cannot be read ({reason}).") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{key} in dataset.path={path!r} is not an array.")
    return array


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
