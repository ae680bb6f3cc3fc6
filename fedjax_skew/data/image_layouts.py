"""Shared functions of the readers of published directories: finding and decoding their images."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from fedjax_skew import errors
from fedjax_skew.checks import whole
from fedjax_skew.data import cache, images, tfds_source
from fedjax_skew.data.arrays import channel_statistics
from fedjax_skew.data.dataset import Dataset

_SUFFIXES = {".jpeg", ".jpg", ".png"}

Listing = list[tuple[Path, int]]


def locate(
    name: str,
    data_dir: str | os.PathLike[str] | None,
    folders: Sequence[str],
    fits: Callable[[Path], bool],
    needed: str,
) -> Path:
    """Finds the directory that contains a published layout.

    Args:
        name: dataset name.
        data_dir: where to look; TFDS's data directory by default.
        folders: usual names of the directory.
        fits: returns whether a directory has the layout.
        needed: a description of the layout for the error message.

    Raises:
        ValueError: if no directory has the layout.
    """
    root = Path(data_dir).expanduser() if data_dir else tfds_source.default_dir()
    tried = [base / f for base in (root, root / "downloads" / "manual") for f in (".", *folders)]
    for candidate in tried:
        if candidate.is_dir() and fits(candidate):
            return candidate
    raise errors.NotPrepared(
        f"dataset.name={name!r} was not found: looked for {needed} in {root}, in its folders "
        f"{', '.join(folders)} and in {root / 'downloads' / 'manual'}; put it there.",
        f"--dataset={name} --manual_dir={root}",
    )


def list_images(folder: Path) -> list[Path]:
    """Returns the image files of a folder, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in _SUFFIXES and p.is_file())


def subfolders(folder: Path) -> list[str]:
    """Returns the names of the visible folders inside a folder, sorted."""
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def load_images(
    name: str,
    root: Path,
    train: Listing,
    test: Listing,
    class_names: Iterable[str],
    image_size: int,
    cache_dir: str | os.PathLike[str] | None,
) -> Dataset:
    """Decodes listed (file, label) pairs as square RGB images, using the cache."""
    whole(1, 4096).check("dataset.image_size", image_size)
    names = tuple(class_names)
    for part, listing in (("training", train), ("test", test)):
        if not listing:
            raise ValueError(f"dataset.name={name!r} has no {part} images in {root}.")
        for path, _ in listing:
            if not path.is_file():
                raise ValueError(
                    f"dataset.name={name!r} lists the image {path}, which does not exist."
                )
    labels = [label for _, label in train] + [label for _, label in test]
    facts = cache.file_facts((path for path, _ in train + test), root)
    key = cache.fingerprint([name, image_size, names, len(train), labels, facts])

    def build() -> Dataset:
        arrays = {}
        for part, listing in (("train", train), ("test", test)):
            size = (int(image_size), int(image_size))
            arrays[f"x_{part}"] = images.decode_files(
                f"{name} ({part})", [path for path, _ in listing], size=size
            )
            arrays[f"y_{part}"] = np.array([label for _, label in listing], np.int32)
        mean, std = channel_statistics(arrays["x_train"])
        return Dataset(
            name, num_classes=len(names), mean=mean, std=std, class_names=names, **arrays
        )

    return cache.fetch(name, key, build, cache_dir)
