"""A cache of decoded datasets on disk, so that images are decoded only once.

One directory per dataset and fingerprint contains plain ``.npy`` files, which are memory-mapped
when read. A directory is created by a single rename, so that readers never see an incomplete one.
The cache may be deleted at any time. If it cannot be written, only a warning is logged.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from absl import logging

from fedjax_skew.data.dataset import Dataset, check_arrays

_FORMAT = 1
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_warned: set[str] = set()


def directory(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Returns ``cache_dir``, else ``$FEDJAX_SKEW_CACHE``, else ``~/.cache/fedjax_skew``."""
    chosen = cache_dir or os.environ.get("FEDJAX_SKEW_CACHE") or "~/.cache/fedjax_skew"
    return Path(chosen).expanduser()


def fingerprint(parts: Iterable[object]) -> str:
    """Returns a short hash of the text representations of ``parts``."""
    digest = hashlib.sha256(f"format {_FORMAT}\n".encode())
    for part in parts:
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()[:16]


def file_facts(paths: Iterable[Path], root: Path) -> list[tuple[str, int, int]]:
    """Returns (relative name, size, modification time) of files, for a fingerprint."""
    facts = []
    for path in paths:
        status = path.stat()
        facts.append((os.path.relpath(path, root), status.st_size, status.st_mtime_ns))
    return facts


def fetch(
    name: str,
    key: str,
    build: Callable[[], Dataset],
    cache_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Returns the cached dataset, or builds it and writes it to the cache.

    Args:
        name: the dataset's name.
        key: the fingerprint of the dataset's sources.
        build: builds the dataset if it is not in the cache.
        cache_dir: see :func:`directory`.
    """
    root = directory(cache_dir)
    folder = root / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}-{key}"
    if folder.is_dir():
        try:
            return check_arrays(_read(folder))
        except (OSError, ValueError, KeyError, TypeError) as error:
            logging.warning("The cache %s is damaged (%s) and is rebuilt.", folder, error)
            shutil.rmtree(folder, ignore_errors=True)
    dataset = check_arrays(build())
    try:
        _write(dataset, folder)
    except OSError as error:
        if str(root) not in _warned:
            _warned.add(str(root))
            logging.warning(
                "The cache %s cannot be written (%s), so %s is decoded again next time; set "
                "FEDJAX_SKEW_CACHE to a writable directory.",
                root,
                error.strerror or error,
                name,
            )
    return dataset


def _read(folder: Path) -> Dataset:
    meta = json.loads((folder / "meta.json").read_text())
    arrays = {key: _map(folder / f"{key}.npy") for key in _ARRAYS}
    ids = _map(folder / "client_ids.npy") if meta["natural"] else None
    return Dataset(
        name=meta["name"],
        num_classes=meta["num_classes"],
        client_ids=ids,
        mean=tuple(meta["mean"]),
        std=tuple(meta["std"]),
        class_names=tuple(meta["class_names"]),
        **arrays,
    )


def _map(path: Path) -> np.ndarray:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray)


def _write(dataset: Dataset, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    try:
        for key in _ARRAYS:
            np.save(temporary / f"{key}.npy", getattr(dataset, key), allow_pickle=False)
        if dataset.client_ids is not None:
            np.save(temporary / "client_ids.npy", dataset.client_ids, allow_pickle=False)
        meta = {
            "name": dataset.name,
            "num_classes": dataset.num_classes,
            "natural": dataset.client_ids is not None,
            "mean": dataset.mean,
            "std": dataset.std,
            "class_names": dataset.class_names,
        }
        (temporary / "meta.json").write_text(json.dumps(meta))
        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:
            # Another process may have written the same content first.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
