"""The one form every dataset takes, and the door to all of them.

``load(name)`` returns a :class:`Dataset`: arrays in host memory (or mapped from the cache), labels,
and, where the data has them, natural clients. The official test set is always the test set.
Readers are imported inside ``load`` so that listing names costs nothing.
"""

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np

_CHUNK = 4096

# Read from a directory made by hand, not through TFDS.
OWN_LAYOUTS = ("femnist", "tiny_imagenet", "mini_imagenet", "imagenet_subset12")


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A classification dataset.

    Attributes:
        name: the name it was loaded by.
        x_train: uint8 ``[N, H, W, C]`` images or float32 ``[N, ...]``.
        y_train: int32 ``[N]``, values in ``[0, num_classes)``.
        x_test: as ``x_train``.
        y_test: as ``y_train``.
        num_classes: number of classes.
        client_ids: int32 ``[N]``, the natural client of every training sample, or None.
        mean: per-channel mean of ``x_train / 255``; ``()`` for float data.
        std: per-channel standard deviation of ``x_train / 255``; ``()`` for float data.
        class_names: one name per class, or ``()``.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int
    client_ids: np.ndarray | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    class_names: tuple[str, ...] = ()


def validate(dataset: Dataset) -> Dataset:
    """Checks a dataset and returns it.

    Raises:
        ValueError: one sentence naming the first array that is wrong.
    """
    if dataset.num_classes < 1:
        raise ValueError(f"num_classes={dataset.num_classes} of {dataset.name} must be at least 1.")
    for part in ("train", "test"):
        x, y = getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}")
        _check_samples(f"x_{part}", x)
        _check_labels(f"y_{part}", y, len(x), dataset.num_classes)
    if dataset.x_train.dtype != dataset.x_test.dtype:
        raise ValueError(
            f"x_train is {dataset.x_train.dtype} but x_test is {dataset.x_test.dtype}; both must "
            "be "
            "uint8 or both float32."
        )
    if dataset.x_train.shape[1:] != dataset.x_test.shape[1:]:
        raise ValueError(
            f"x_train has samples of shape {dataset.x_train.shape[1:]} but x_test of shape "
            f"{dataset.x_test.shape[1:]}; they must be equal."
        )
    ids = dataset.client_ids
    if ids is not None:
        if ids.shape != dataset.y_train.shape or ids.dtype != np.int32:
            raise ValueError(
                f"client_ids is {ids.dtype} {list(ids.shape)} but must be int32 "
                f"[{len(dataset.y_train)}], one natural client per training sample."
            )
        if ids.min() < 0:
            raise ValueError(f"client_ids holds {ids.min()}; client ids must not be negative.")
    return dataset


def _check_samples(field: str, x: np.ndarray) -> None:
    if x.dtype not in (np.uint8, np.float32):
        raise ValueError(f"{field} has dtype {x.dtype}; allowed: uint8 images or float32.")
    if x.dtype == np.uint8 and x.ndim != 4:
        raise ValueError(
            f"{field} has shape {list(x.shape)}; uint8 images must be [samples, height, width, "
            "channels]."
        )
    if x.ndim not in (2, 4):
        raise ValueError(
            f"{field} has shape {list(x.shape)}; allowed: [samples, features] or "
            "[samples, height, width, channels]."
        )
    if 0 in x.shape:
        raise ValueError(f"{field} has shape {list(x.shape)}; every axis needs at least one entry.")
    if x.dtype == np.float32:
        for start in range(0, len(x), _CHUNK):
            if not np.isfinite(x[start : start + _CHUNK]).all():
                raise ValueError(
                    f"{field} holds NaN or infinite values; every value must be finite."
                )


def _check_labels(field: str, y: np.ndarray, samples: int, num_classes: int) -> None:
    if y.dtype != np.int32 or y.ndim != 1:
        raise ValueError(f"{field} is {y.dtype} {list(y.shape)}; labels must be int32 [samples].")
    if len(y) != samples:
        raise ValueError(
            f"{field} has {len(y)} labels for {samples} samples in x{field[1:]}; the numbers must "
            "be equal."
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= num_classes:
        bad = low if low < 0 else high
        raise ValueError(
            f"{field} holds the label {bad}; labels must be in 0..{num_classes - 1} ({num_classes} "
            "classes)."
        )


def channel_statistics(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and standard deviation per channel of ``x / 255``; ``((), ())`` for float data.

    Computed from exact histograms, so the result does not depend on summation order. A channel
    without any variation gets a standard deviation of 1, because it is divided by.
    """
    if x.dtype != np.uint8:
        return (), ()
    channels = x.shape[-1]
    histogram = np.zeros((channels, 256), np.int64)
    for start in range(0, len(x), _CHUNK):
        block = x[start : start + _CHUNK]
        for channel in range(channels):
            histogram[channel] += np.bincount(block[..., channel].ravel(), minlength=256)
    values = np.arange(256) / 255.0
    weights = histogram / histogram.sum(axis=1, keepdims=True)
    mean = weights @ values
    std = np.sqrt((weights * (values - mean[:, None]) ** 2).sum(axis=1))
    std = np.where(std > 0, std, 1.0)
    return tuple(map(float, mean)), tuple(map(float, std))


_NAMES = {
    "synthetic": "Synthetic(lambda, mu), 10 classes, 60 features, natural clients; also "
    "synthetic(0,0), synthetic(0.5,0.5), synthetic(1,1); nothing to download",
    "npz": "your own .npz file (dataset.path) with x_train, y_train, x_test, y_test [, client_ids]",
    "mnist": "TFDS, 60,000 + 10,000 digits, 28x28x1, 10 classes",
    "fashion_mnist": "TFDS, 60,000 + 10,000 clothes, 28x28x1, 10 classes",
    "emnist/balanced": "TFDS, 112,800 + 18,800 characters, 28x28x1, 47 classes, turned upright",
    "cifar10": "TFDS, 50,000 + 10,000 photographs, 32x32x3, 10 classes",
    "cifar100": "TFDS, 50,000 + 10,000 photographs, 32x32x3, 100 classes",
    "svhn_cropped": "TFDS, 73,257 + 26,032 house numbers, 32x32x3, 10 classes",
    "femnist": "LEAF json files, characters by writer, 28x28x1, 62 classes, natural clients",
    "tiny_imagenet": "TinyImageNet-200 folders, 100,000 + 10,000, 64x64x3, 200 classes",
    "mini_imagenet": "mini-ImageNet CSV splits or folders, 50,000 + 5,000, 84x84x3, 100 classes",
    "imagenet_subset12": "12 ImageNet synset folders, resized to 64x64x3",
}


def names() -> dict[str, str]:
    """Returns every dataset name with one line of description.

    Any other TFDS image classification name works too once it is prepared.
    """
    return dict(_NAMES)


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Dataset:
    """Loads a dataset by name.

    Args:
        name: one of :func:`names`, ``synthetic(lambda, mu)``, or any prepared TFDS image
            classification name.
        data_dir: where TFDS data is prepared or where a manual dataset lies; default TFDS's own
            directory (``$TFDS_DATA_DIR``, else ``~/tensorflow_datasets``).
        path: the file of ``npz``.
        seed: draws the synthetic data; other datasets do not depend on it.
        **options: what the reader of this dataset takes: ``num_clients``, ``iid``,
            ``published_code`` (synthetic), ``num_classes`` (npz), ``image_size``, ``cache_dir``
            (everything decoded from images), ``synsets`` (imagenet_subset12).

    Returns:
        A validated dataset.

    Raises:
        ValueError: one sentence that says what is wrong or missing and what would mend it.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(
            f"dataset.name={name!r} must be a name; allowed: {', '.join(sorted(_NAMES))}."
        )
    name = name.strip()
    if path is not None and name != "npz":
        raise ValueError(
            f"dataset.path={os.fspath(path)!r} is only for dataset.name='npz', not {name!r}."
        )
    reader, arguments = _reader(name, data_dir, path, seed)
    accepted = [
        p.name for p in inspect.signature(reader).parameters.values() if p.name not in arguments
    ]
    for option in options:
        if option not in accepted:
            raise ValueError(
                f"dataset.{option}={options[option]!r} does not apply to dataset.name={name!r}, "
                f"whose options are: {', '.join(accepted) or 'none'}."
            )
    return validate(reader(**arguments, **options))


def _reader(
    name: str, data_dir: Any, path: Any, seed: int
) -> tuple[Callable[..., Dataset], dict[str, Any]]:
    if name.startswith("synthetic"):
        from fedjax_skew.data import synthetic

        return synthetic.load, {"name": name, "seed": seed}
    if name == "npz":
        from fedjax_skew.data import npz

        return npz.load, {"path": path}
    from fedjax_skew.data import image_folders, leaf, tfds_source

    own = {
        "femnist": leaf.load,
        "tiny_imagenet": image_folders.load_tiny_imagenet,
        "mini_imagenet": image_folders.load_mini_imagenet,
        "imagenet_subset12": image_folders.load_imagenet_subset12,
    }
    if name in own:
        return own[name], {"data_dir": data_dir}
    return tfds_source.load, {"name": name, "data_dir": data_dir}
