"""FEMNIST as LEAF writes it: characters of the NIST forms, one natural client per writer.

Layout: ``train/*.json`` and ``test/*.json``, each file with ``users``, ``num_samples`` and
``user_data``, where ``user_data[user]`` holds ``x`` (784 values in [0, 1] per image) and ``y``
(0..61: digits, upper case, lower case). Pixels are stored as the bytes they came from. The union of
the test files is the test set.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedjax_skew.data import cache, datasets, image_layouts

_SIDE = 28
_CLASS_NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def load(
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> datasets.Dataset:
    """Reads FEMNIST.

    Args:
        data_dir: directory with ``train/`` and ``test/``, or one that has it as ``femnist`` or
            ``femnist/data``.
        cache_dir: see :mod:`fedjax_skew.data.cache`.

    Returns:
        uint8 ``[N, 28, 28, 1]``, 62 classes; client ids number the writers of the training files in
        the order of their names.
    """
    root = image_layouts.locate(
        "femnist",
        data_dir,
        ("femnist", "femnist/data", "data", "leaf/data/femnist/data"),
        lambda p: any((p / "train").glob("*.json")) and any((p / "test").glob("*.json")),
        "LEAF's train/*.json and test/*.json",
    )
    files = {part: sorted((root / part).glob("*.json")) for part in ("train", "test")}
    facts = cache.file_facts(files["train"] + files["test"], root)
    return cache.fetch(
        "femnist", cache.fingerprint(["femnist", facts]), lambda: _build(files), cache_dir
    )


def _build(files: dict[str, list[Path]]) -> datasets.Dataset:
    x, y, writers = _read(files["train"])
    x_test, y_test, _ = _read(files["test"])
    _, client_ids = np.unique(np.array(writers), return_inverse=True)
    mean, std = datasets.channel_statistics(x)
    return datasets.Dataset(
        "femnist",
        x,
        y,
        x_test,
        y_test,
        len(_CLASS_NAMES),
        client_ids.astype(np.int32),
        mean,
        std,
        _CLASS_NAMES,
    )


def _read(files: list[Path]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    pixels, labels, writers = [], [], []
    for file in files:
        for user, x, y in _users(file):
            pixels.append(x)
            labels.append(y)
            writers.extend([user] * len(y))
    if not writers:
        raise ValueError(f"dataset.name='femnist' has no samples in {files[0].parent}.")
    return np.concatenate(pixels), np.concatenate(labels), writers


def _users(file: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields (user, images, labels) of one file, checked."""
    try:
        content = json.loads(file.read_text())
        users, sizes, data = content["users"], content["num_samples"], content["user_data"]
        pairs = list(zip(users, sizes, strict=True))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"The LEAF file {file} cannot be read ({error!r}); it needs users, num_samples and "
            "user_data."
        ) from None
    for user, size in pairs:
        try:
            values = np.asarray(data[user]["x"], np.float64).reshape(-1, _SIDE * _SIDE)
            y = np.asarray(data[user]["y"])
            exact = y.astype(np.int32)
            if not (len(values) == len(y) == size) or (exact != y).any():
                raise ValueError(f"{len(values)} images, {len(y)} labels, num_samples {size}")
            if size and not (values.min() >= 0 and values.max() <= 1):
                raise ValueError("pixels outside 0..1")
            if size and not (np.min(exact) >= 0 and np.max(exact) < len(_CLASS_NAMES)):
                raise ValueError("labels outside 0..61")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"User {user!r} of the LEAF file {file} is malformed ({error})."
            ) from None
        x = np.rint(values * 255).astype(np.uint8).reshape(-1, _SIDE, _SIDE, 1)
        yield str(user), x, exact
