"""Reader of TFDS datasets from a prepared directory, without TensorFlow.

The version directory is found on disk and opened read-only, so that nothing is downloaded, no
dataset code is imported and any prepared version can be used. Images are decoded once with Pillow
and stored in the cache. TFDS stores EMNIST transposed, as in the original files; it is transposed
back here.
"""

import json
import os
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from fedjax_skew import errors
from fedjax_skew.checks import whole
from fedjax_skew.data import cache, datasets, images
from fedjax_skew.data.arrays import channel_statistics
from fedjax_skew.data.catalog import REGISTRY
from fedjax_skew.data.dataset import Dataset

_NAME = re.compile(r"([a-z][a-z0-9_]*)(?:/([A-Za-z0-9_.\-]+))?(?::(\d+\.\d+\.\d+))?")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_BLOCK = 2000


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    image_size: int | None = None,
) -> Dataset:
    """Reads a TFDS image classification dataset.

    The training split is ``train``; the test split is ``test``, or ``validation`` if the dataset
    has no test split. Other splits, such as SVHN's ``extra``, are not used.

    Args:
        name: TFDS name, optionally with configuration and version: ``emnist/balanced:3.1.0``.
        data_dir: TFDS's data directory; by default ``$TFDS_DATA_DIR``, or
            ``~/tensorflow_datasets`` if that is not set.
        cache_dir: see :mod:`fedjax_skew.data.cache`.
        image_size: height and width to which images are resized; required if they differ in size.

    Raises:
        ValueError: if the dataset is unknown, not prepared or damaged.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise datasets.unknown(name)
    if image_size is not None:
        whole(1, 4096).check("dataset.image_size", image_size)
    root = Path(data_dir).expanduser() if data_dir else default_dir()
    folder = _find(name, root, *match.groups())
    facts = cache.file_facts(sorted(p for p in folder.iterdir() if p.is_file()), folder)
    try:
        metadata = [(folder / file).read_text() for file in ("dataset_info.json", "features.json")]
        json.loads(metadata[0])
    except (OSError, ValueError) as error:
        raise _damaged(name, folder, root, error) from None
    key = cache.fingerprint(["tfds", name, image_size, [f[:2] for f in facts], *metadata])
    size = None if image_size is None else (int(image_size), int(image_size))
    dataset = cache.fetch(name, key, lambda: _decode(name, folder, root, size), cache_dir)
    if image_size is None:
        _check_mean(dataset, folder)
    return dataset


def default_dir() -> Path:
    """Returns the data directory that TFDS uses by default."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def is_known(name: str) -> bool:
    """Returns whether a name is registered here or, which is checked second, in TFDS."""
    match = _NAME.fullmatch(name)
    return name.split(":")[0] in REGISTRY or bool(match and _registered(match.group(1)))


def is_prepared(name: str, data_dir: str | os.PathLike[str]) -> bool:
    """Returns whether a dataset is prepared in a directory."""
    match = _NAME.fullmatch(name)
    return bool(match and _versions(Path(data_dir).expanduser(), *match.groups()))


def import_tfds() -> Any:
    """Imports TFDS and suppresses its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return errors.import_extra("tensorflow_datasets", "data")


def _versions(root: Path, dataset: str, config: str | None, version: str | None) -> list[Path]:
    base = root / dataset / config if config else root / dataset
    found = [
        p.parent for p in base.glob("*/dataset_info.json") if _VERSION.fullmatch(p.parent.name)
    ]
    return [p for p in found if version in (None, p.name)]


def _find(name: str, root: Path, dataset: str, config: str | None, version: str | None) -> Path:
    base = root / dataset / config if config else root / dataset
    found = _versions(root, dataset, config, version)
    if found:
        return max(found, key=lambda p: [int(n) for n in p.name.split(".")])
    configs = sorted({p.parent.parent.name for p in base.glob("*/*/dataset_info.json")})
    if configs and not config:
        raise ValueError(
            f"dataset.name={name!r} needs a configuration; prepared under {base}: "
            f"{', '.join(f'{dataset}/{c}' for c in configs)}."
        )
    if not is_known(name):
        raise datasets.unknown(name)
    raise errors.NotPrepared(
        f"dataset.name={name!r} is not prepared: no dataset_info.json was found in "
        f"{base / (version or '<version>')}; prepare it there with TFDS, as array_record.",
        f"--dataset={name} --data_dir={root}",
    )


def _registered(dataset: str) -> bool:
    """Returns whether TFDS has a dataset of this name; only called before an error is raised."""
    try:
        return dataset in import_tfds().list_builders(with_community_datasets=False)
    except Exception:  # A failure of the listing must not hide the error for which it is called.
        return False


def _decode(name: str, folder: Path, root: Path, size: tuple[int, int] | None) -> Dataset:
    tfds = import_tfds()
    try:
        info = tfds.builder_from_directory(folder).info
        keys = info.supervised_keys
        image, label = (info.features[k] for k in keys)
    except Exception as error:  # TFDS raises various exceptions for a damaged directory.
        raise _damaged(name, folder, root, error) from None
    if not isinstance(image, tfds.features.Image) or not isinstance(
        label, tfds.features.ClassLabel
    ):
        raise ValueError(
            f"dataset.name={name!r} is not an image classification dataset; its keys are {keys}."
        )
    if size is None and None in image.shape[:2]:
        raise ValueError(
            f"dataset.name={name!r} has images of different sizes; set dataset.image_size to "
            "resize them."
        )
    test = next((s for s in ("test", "validation") if s in info.splits), None)
    if "train" not in info.splits or test is None:
        raise ValueError(
            f"dataset.name={name!r} has the splits {', '.join(info.splits)}; train and test (or "
            "validation) are needed."
        )
    arrays = {}
    for part, split in (("train", "train"), ("test", test)):
        try:
            records = tfds.builder_from_directory(folder).as_data_source(
                split=split, decoders={keys[0]: tfds.decode.SkipDecoding()}
            )
            arrays[f"x_{part}"], arrays[f"y_{part}"] = _read_split(
                f"{name} ({split})", records, keys, image.shape, size
            )
        except NotImplementedError:
            raise errors.NotPrepared(
                f"dataset.name={name!r} in {folder} is stored as {info.file_format.value}, which "
                "only TensorFlow reads; prepare it as array_record in another directory.",
                f"--dataset={name} --data_dir=DIR",
            ) from None
        except Exception as error:  # The record reader and TFDS raise various exceptions.
            raise _damaged(name, folder, root, error) from None
        if name.split("/")[0].split(":")[0] == "emnist":
            arrays[f"x_{part}"] = np.ascontiguousarray(arrays[f"x_{part}"].transpose(0, 2, 1, 3))
    mean, std = channel_statistics(arrays["x_train"])
    names = tuple(label.names) if label.num_classes else ()
    return Dataset(
        name, num_classes=label.num_classes, mean=mean, std=std, class_names=names, **arrays
    )


def _check_mean(dataset: Dataset, folder: Path) -> None:
    """Logs a warning if the mean of the images differs from the published one."""
    info = datasets.find(dataset.name.split(":")[0])
    if info is not None and info.mean and not np.allclose(dataset.mean, info.mean, atol=0.005):
        logging.warning(
            "The images of %s in %s have the mean %s but the published ones have %s; the directory "
            "seems to hold something else.",
            dataset.name,
            folder,
            tuple(round(m, 4) for m in dataset.mean),
            info.mean,
        )


def _read_split(
    title: str,
    records: Any,
    keys: tuple[str, str],
    shape: Any,
    size: tuple[int, int] | None,
) -> tuple[np.ndarray, np.ndarray]:
    count, channels = len(records), shape[-1] or 3
    x = np.empty((count, *(size or shape[:2]), channels), np.uint8)
    y = np.empty(count, np.int32)

    def work(job: tuple[int, list[dict[str, Any]]]) -> None:
        for index, record in enumerate(job[1], job[0]):
            x[index] = images.decode(record[keys[0]], channels=channels, size=size)
            y[index] = record[keys[1]]

    blocks = (
        (start, records.__getitems__(list(range(start, min(start + _BLOCK, count)))))
        for start in range(0, count, _BLOCK)
    )
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool, images.progress(title, count) as bar:
        for _ in pool.map(work, blocks):
            bar.update(min(_BLOCK, count - bar.n))
    return x, y


def _damaged(name: str, folder: Path, root: Path, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return errors.NotPrepared(
        f"dataset.name={name!r} in {folder} is damaged ({reason}); delete that directory and "
        "prepare it again.",
        f"--dataset={name} --data_dir={root}",
    )
