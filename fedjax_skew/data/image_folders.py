"""Readers of the published folders of TinyImageNet-200, mini-ImageNet and a 12-class ImageNet.

In all three datasets, classes are numbered in the order of their sorted synset names. Images are
RGB; an image of another size is resized as a whole, without cropping.
"""

import csv
import os
from collections.abc import Sequence
from pathlib import Path

from fedjax_skew.data import image_layouts
from fedjax_skew.data.dataset import Dataset

_SPLITS = ("train", "val", "test")


def load_tiny_imagenet(
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    image_size: int = 64,
) -> Dataset:
    """Reads TinyImageNet-200.

    The layout is ``wnids.txt``, ``train/<wnid>/images/*.JPEG``, ``val/images/*.JPEG`` with
    ``val/val_annotations.txt``, and ``words.txt``. The labels of the official test images have not
    been published, so the validation set is used as the test set, as is usual in the literature.
    """
    root = image_layouts.locate(
        "tiny_imagenet",
        data_dir,
        ("tiny-imagenet-200", "tiny_imagenet"),
        lambda p: (p / "wnids.txt").is_file() and (p / "train").is_dir(),
        "wnids.txt, train/ and val/ of tiny-imagenet-200",
    )
    wnids = sorted(set((root / "wnids.txt").read_text().split()))
    index = {wnid: label for label, wnid in enumerate(wnids)}
    annotations = root / "val" / "val_annotations.txt"
    missing = [w for w in wnids if not (root / "train" / w / "images").is_dir()]
    if missing or not annotations.is_file():
        what = root / "train" / missing[0] / "images" if missing else annotations
        raise ValueError(
            f"dataset.name='tiny_imagenet' lacks {what}; unpack tiny-imagenet-200.zip again."
        )
    train = [
        (p, index[w])
        for w in wnids
        for p in image_layouts.list_images(root / "train" / w / "images")
    ]
    test = []
    for number, line in enumerate(annotations.read_text().splitlines(), 1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in index:
            raise ValueError(
                f"Line {number} of {annotations} is malformed or names a class not in wnids.txt."
            )
        test.append((annotations.parent / "images" / fields[0], index[fields[1]]))
    names = _words(root / "words.txt", wnids)
    return image_layouts.load_images(
        "tiny_imagenet", root, train, test, names, image_size, cache_dir
    )


def load_mini_imagenet(
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    image_size: int = 84,
) -> Dataset:
    """Reads mini-ImageNet as a 100-class problem.

    Two layouts are supported: the published ``train.csv``, ``val.csv`` and ``test.csv`` (columns
    filename, label) next to ``images/``; and one folder per class, either at the top level or
    inside ``train``, ``val`` and ``test``.

    The published splits are few-shot splits with disjoint classes. For classification, all 100
    classes are combined, and the 600 images of each class, in the order of their file names, are
    divided into 500 for training, 50 for validation (not used) and 50 for testing; a class of
    another size is divided in the same proportion 10 : 1 : 1. If the folders ``train`` and ``test``
    contain the same classes, that split is used instead. ``image_size`` is 84 by default; the
    FedLC-LT paper uses 224.
    """
    root = image_layouts.locate(
        "mini_imagenet",
        data_dir,
        ("mini-imagenet", "mini_imagenet", "miniImageNet", "miniimagenet"),
        _is_mini_imagenet,
        "train.csv with images/, or one folder per class,",
    )
    if (root / "train.csv").is_file():
        parts = [
            _csv_classes(root, root / f"{s}.csv") for s in _SPLITS if (root / f"{s}.csv").is_file()
        ]
    else:
        homes = [root / s for s in _SPLITS if (root / s).is_dir()] or [root]
        parts = [
            {w: image_layouts.list_images(home / w) for w in image_layouts.subfolders(home)}
            for home in homes
        ]
    if len(parts) > 1 and set(parts[0]) == set(parts[-1]):
        wnids = sorted(parts[0])
        train = [(p, c) for c, w in enumerate(wnids) for p in parts[0][w]]
        test = [(p, c) for c, w in enumerate(wnids) for p in parts[-1][w]]
        return image_layouts.load_images(
            "mini_imagenet", root, train, test, wnids, image_size, cache_dir
        )
    files: dict[str, list[Path]] = {}
    for part in parts:
        for wnid, paths in part.items():
            files[wnid] = sorted({*files.get(wnid, []), *paths}, key=lambda p: p.name)
    train, test = [], []
    for label, wnid in enumerate(sorted(files)):
        paths = files[wnid]
        held = max(1, len(paths) // 12)
        if len(paths) < 3:
            raise ValueError(
                f"dataset.name='mini_imagenet' has {len(paths)} images of {wnid} in {root}; 3 are "
                "needed."
            )
        train += [(p, label) for p in paths[: len(paths) - 2 * held]]
        test += [(p, label) for p in paths[len(paths) - held :]]
    return image_layouts.load_images(
        "mini_imagenet", root, train, test, sorted(files), image_size, cache_dir
    )


def load_imagenet_subset12(
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    image_size: int = 64,
    synsets: str | Sequence[str] = (),
) -> Dataset:
    """Reads a 12-class subset of ImageNet at 64x64.

    The layout is ``train/<synset>/*.JPEG`` and ``val/<synset>/*.JPEG``; ``val`` is the test set.
    The FedLC paper does not name its 12 classes: either there are exactly 12 folders, or
    ``synsets`` names 12 of them, separated by commas, so that a full ImageNet directory can be
    used.
    """
    root = image_layouts.locate(
        "imagenet_subset12",
        data_dir,
        ("imagenet_subset12", "imagenet-12", "imagenet"),
        lambda p: (p / "train").is_dir() and (p / "val").is_dir(),
        "train/ and val/ with 12 synset folders each",
    )
    wanted = synsets.split(",") if isinstance(synsets, str) else list(synsets)
    chosen = sorted({s.strip() for s in wanted if s.strip()}) or image_layouts.subfolders(
        root / "train"
    )
    if len(chosen) != 12:
        raise ValueError(
            f"dataset.name='imagenet_subset12' needs 12 synset folders but has {len(chosen)} in "
            f"{root / 'train'}; name 12 of them in dataset.synsets, separated by commas."
        )
    listings: dict[str, image_layouts.Listing] = {}
    for part in ("train", "val"):
        missing = [s for s in chosen if not (root / part / s).is_dir()]
        if missing:
            raise ValueError(
                f"dataset.name='imagenet_subset12' lacks the folder {root / part / missing[0]}."
            )
        listings[part] = [
            (p, c) for c, s in enumerate(chosen) for p in image_layouts.list_images(root / part / s)
        ]
    return image_layouts.load_images(
        "imagenet_subset12", root, listings["train"], listings["val"], chosen, image_size, cache_dir
    )


def _words(path: Path, wnids: Sequence[str]) -> list[str]:
    words = {}
    if path.is_file():
        words = dict(line.split("\t", 1) for line in path.read_text().splitlines() if "\t" in line)
    return [words.get(wnid, wnid).strip() for wnid in wnids]


def _is_mini_imagenet(path: Path) -> bool:
    if (path / "train.csv").is_file():
        return (path / "images").is_dir()
    homes = [path / s for s in _SPLITS if (path / s).is_dir()] or [path]
    return all(_is_class_folders(home) for home in homes)


def _is_class_folders(path: Path) -> bool:
    folders = image_layouts.subfolders(path)
    return bool(folders) and all(f[:1] == "n" and f[1:].isdigit() for f in folders)


def _csv_classes(root: Path, path: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    with open(path, newline="") as stream:
        for number, row in enumerate(csv.reader(stream), 1):
            if number == 1 and row[:2] == ["filename", "label"]:
                continue
            # A file name that contains a path could point outside of the folder of images.
            if len(row) < 2 or os.path.basename(row[0]) != row[0] or not row[0] or not row[1]:
                raise ValueError(f"Line {number} of {path} is not of the form filename,label.")
            files.setdefault(row[1], []).append(root / "images" / row[0])
    return files
