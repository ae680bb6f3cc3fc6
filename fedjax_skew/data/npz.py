"""A user's own ``.npz`` file.

Keys: ``x_train``, ``y_train``, ``x_test``, ``y_test`` and, if the data has natural clients,
``client_ids`` (one integer per training sample). Images are uint8 ``[N, H, W, C]`` (``[N, H, W]``
is read as one channel); anything else is float ``[N, ...]`` and becomes float32. Nothing in the
file is ever executed: arrays of Python objects are refused.
"""

import os
import zipfile
import zlib
from typing import Any

import numpy as np

from fedjax_skew.data import datasets

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


def load(path: str | os.PathLike[str] | None, num_classes: int | None = None) -> datasets.Dataset:
    """Reads an ``.npz`` file.

    Args:
        path: the file.
        num_classes: number of classes; default one more than the largest label.

    Raises:
        ValueError: one sentence naming the key or the file and what is allowed.
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
    data: dict[str, Any] = {}
    for part in ("train", "test"):
        data[f"x_{part}"] = _samples(path, f"x_{part}", arrays[f"x_{part}"])
        data[f"y_{part}"] = _integers(path, f"y_{part}", arrays[f"y_{part}"])
    ids = arrays.get("client_ids")
    if ids is not None:
        # Any integers may name clients; they are numbered in their order.
        ids = np.unique(_integers(path, "client_ids", ids), return_inverse=True)[1].astype(np.int32)
    mean, std = datasets.channel_statistics(data["x_train"])
    classes = _num_classes(path, data, num_classes)
    dataset = datasets.Dataset(
        "npz", num_classes=classes, client_ids=ids, mean=mean, std=std, **data
    )
    try:
        return datasets.validate(dataset)
    except ValueError as error:
        raise ValueError(f"In dataset.path={path!r}, {error}") from None


def _read(path: str) -> dict[str, np.ndarray]:
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


def _samples(path: str, key: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise ValueError(
            f"{key} in dataset.path={path!r} has dtype {x.dtype}; allowed: uint8 images or floats."
        )
    if x.ndim not in (2, 3, 4) or (x.ndim == 2 and x.dtype == np.uint8):
        raise ValueError(
            f"{key} in dataset.path={path!r} has shape {list(x.shape)}; allowed: "
            "[samples, height, width, channels], [samples, height, width], or float [samples, "
            "features]."
        )
    if x.ndim == 3:
        x = x[..., None]
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, np.float32)


def _integers(path: str, key: str, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "iu":
        raise ValueError(
            f"{key} in dataset.path={path!r} has dtype {y.dtype}; integers are needed."
        )
    if y.ndim != 1:
        raise ValueError(
            f"{key} in dataset.path={path!r} has shape {list(y.shape)}; one integer per sample "
            "([samples]) is needed."
        )
    if len(y) and not -(2**31) <= int(y.min()) <= int(y.max()) < 2**31:
        raise ValueError(f"{key} in dataset.path={path!r} holds {y.max()}, which is out of range.")
    return y.astype(np.int32)


def _num_classes(path: str, data: dict[str, Any], num_classes: int | None) -> int:
    labels = [data[key] for key in ("y_train", "y_test") if len(data[key])]
    largest = max((int(y.max()) for y in labels), default=0)
    if num_classes is not None:
        if (
            isinstance(num_classes, bool)
            or not isinstance(num_classes, (int, np.integer))
            or num_classes < 1
        ):
            raise ValueError(
                f"dataset.num_classes={num_classes!r} must be an integer of at least 1."
            )
        return int(num_classes)
    if largest >= sum(map(len, labels)) and largest > 0:
        raise ValueError(
            f"dataset.path={path!r} holds the label {largest} but fewer samples than that; labels "
            "must "
            "count from 0 (set dataset.num_classes if so many classes are meant)."
        )
    return max(largest, 0) + 1


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
