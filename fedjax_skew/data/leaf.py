"""Datasets in LEAF's JSON format, such as FEMNIST, with one natural client per user.

A file contains ``users``, optionally ``num_samples``, and ``user_data``, where ``user_data[user]``
has ``x``, one vector of numbers or one image per sample, and ``y``, one integer label per sample.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_skew.data import cache, image_layouts
from fedjax_skew.data.arrays import channel_statistics
from fedjax_skew.data.dataset import Dataset

_SIDE = 28
_CLASS_NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class _Samples(NamedTuple):
    """Samples, labels and users of several files."""

    x: np.ndarray
    y: np.ndarray
    users: np.ndarray


def load(
    path: str | os.PathLike[str] | None,
    num_classes: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Reads any dataset in LEAF's JSON format.

    Args:
        path: a directory with ``train/*.json`` and ``test/*.json``; or one ``.json`` file or a
            directory of such files (LEAF's ``all_data``), of which the last tenth of the samples of
            every user with at least two samples, and at least one sample, becomes the test set.
        num_classes: number of classes; one more than the largest label by default.
        cache_dir: see :mod:`fedjax_skew.data.cache`.

    Returns:
        A dataset whose client ids enumerate the users of the training set in the order of their
        names. Samples are converted as by :meth:`Dataset.from_arrays`.
    """
    if path is None or not os.fspath(path):
        raise ValueError(
            "dataset.path is empty; dataset.name='leaf' needs a LEAF .json file or a directory of "
            "them."
        )
    root = Path(path).expanduser()
    parts = [sorted((root / part).glob("*.json")) for part in ("train", "test")]
    if not all(parts):
        parts = [[root] if root.is_file() else sorted(root.glob("*.json"))]
    files = [file for part in parts for file in part]
    if not files:
        raise ValueError(
            f"dataset.path={os.fspath(path)!r} has no .json files, neither in it nor in train/ and "
            "test/."
        )

    def build() -> Dataset:
        read = [_read(part) for part in parts]
        train, test = read if len(read) == 2 else _split(read[0])
        try:
            return Dataset.from_arrays(
                *(train.x, train.y, test.x, test.y),
                num_classes=num_classes,
                client_ids=np.unique(train.users, return_inverse=True)[1],
                name="leaf",
            )
        except ValueError as error:
            raise ValueError(f"In dataset.path={os.fspath(path)!r}: {error}") from None

    key = cache.fingerprint(["leaf", num_classes, len(parts), cache.file_facts(files, root)])
    return cache.fetch("leaf", key, build, cache_dir)


def load_femnist(
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Reads FEMNIST, characters of the NIST forms with one client per writer.

    Images have 784 values in [0, 1], which are stored as bytes. Labels are 0..61: digits, upper
    case and lower case. The union of the test files is the test set.

    Args:
        data_dir: directory with ``train/`` and ``test/``, or one that contains it as ``femnist`` or
            ``femnist/data``.
        cache_dir: see :mod:`fedjax_skew.data.cache`.

    Returns:
        uint8 ``[N, 28, 28, 1]`` with 62 classes; client ids enumerate the writers of the training
        files in the order of their names.
    """
    root = image_layouts.locate(
        "femnist",
        data_dir,
        ("femnist", "femnist/data", "data", "leaf/data/femnist/data"),
        lambda p: any((p / "train").glob("*.json")) and any((p / "test").glob("*.json")),
        "LEAF's train/*.json and test/*.json",
    )
    files = {part: sorted((root / part).glob("*.json")) for part in ("train", "test")}

    def build() -> Dataset:
        train, test = (_read(files[part]) for part in ("train", "test"))
        images = _femnist_images(root / "train", train)
        mean, std = channel_statistics(images)
        return Dataset(
            "femnist",
            x_train=images,
            y_train=train.y,
            x_test=_femnist_images(root / "test", test),
            y_test=test.y,
            num_classes=len(_CLASS_NAMES),
            client_ids=np.unique(train.users, return_inverse=True)[1].astype(np.int32),
            mean=mean,
            std=std,
            class_names=_CLASS_NAMES,
        )

    facts = cache.file_facts(files["train"] + files["test"], root)
    return cache.fetch("femnist", cache.fingerprint(["femnist", facts]), build, cache_dir)


def _femnist_images(folder: Path, samples: _Samples) -> np.ndarray:
    x = samples.x.reshape(len(samples.x), -1)
    if x.shape[1] != _SIDE * _SIDE or not (x.min() >= 0 and x.max() <= 1):
        raise ValueError(f"The images in {folder} must have 784 values in 0..1 each.")
    if samples.y.max() >= len(_CLASS_NAMES):
        raise ValueError(f"The labels in {folder} must be in 0..61.")
    return np.rint(x * 255).astype(np.uint8).reshape(-1, _SIDE, _SIDE, 1)


def _split(samples: _Samples) -> tuple[_Samples, _Samples]:
    """Splits off the last tenth of every user's samples, at least one if there are two or more."""
    _, users, sizes = np.unique(samples.users, return_inverse=True, return_counts=True)
    order = np.argsort(users, kind="stable")
    rank = np.empty(len(users), np.int64)
    rank[order] = np.arange(len(users)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    held = np.where(sizes > 1, np.maximum(sizes // 10, 1), 0)
    test = rank >= (sizes - held)[users]
    return _Samples(*(a[~test] for a in samples)), _Samples(*(a[test] for a in samples))


def _read(files: Sequence[Path]) -> _Samples:
    parts = [part for file in files for part in _users(file)]
    if not parts:
        raise ValueError(f"The LEAF files in {files[0].parent} have no samples.")
    users, xs, ys = zip(*parts, strict=True)
    shapes = {x.shape[1:] for x in xs}
    if len(shapes) > 1:
        raise ValueError(f"The LEAF files in {files[0].parent} have samples of shapes {shapes}.")
    return _Samples(np.concatenate(xs), np.concatenate(ys), np.repeat(users, [len(y) for y in ys]))


def _users(file: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields the validated (user, samples, labels) of one file, except users without samples."""
    try:
        content = json.loads(file.read_text())
        users, data = list(content["users"]), content["user_data"]
        sizes = content.get("num_samples", [None] * len(users))
        pairs = list(zip(users, sizes, strict=True))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"The LEAF file {file} cannot be read ({error!r}); it needs users and user_data."
        ) from None
    for user, size in pairs:
        try:
            x, y = _arrays(data[user])
            if len(x) != len(y) or size not in (None, len(y)):
                raise ValueError(f"{len(x)} samples, {len(y)} labels, num_samples {size}")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"User {user!r} of the LEAF file {file} is malformed ({error})."
            ) from None
        if len(y):
            yield str(user), x, y


def _arrays(entry: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(entry["x"]), np.asarray(entry["y"])
    if x.size and x.dtype.kind not in "iuf":
        raise ValueError("x must hold numbers; text and file names are not supported")
    if y.ndim != 1 or (y.size and y.dtype.kind not in "iuf"):
        raise ValueError("y must hold one integer per sample")
    labels = y.astype(np.int32)
    if (labels != y).any() or (labels < 0).any():
        raise ValueError("labels must be integers that count from 0")
    return x, labels
