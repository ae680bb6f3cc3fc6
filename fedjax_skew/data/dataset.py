"""The one form every dataset takes, and how it is built from arrays.

:meth:`Dataset.from_arrays` accepts what numpy accepts and converts it. The readers of files build
:class:`Dataset` themselves. :func:`validate` checks either.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from fedjax_skew import checks

_CHUNK = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A classification dataset in host memory, or mapped from files.

    Attributes:
        name: the name it was loaded by.
        x_train: uint8 ``[N, H, W, C]`` images or float32 ``[N, ...]``.
        y_train: int32 ``[N]``, values in ``[0, num_classes)``.
        x_test: as ``x_train``.
        y_test: as ``y_train``.
        num_classes: number of classes.
        client_ids: int ``[N]``, the natural client of every training sample, or None.
        mean: per-channel mean of ``x_train / 255``; ``()`` for float data, which is used as it is.
        std: per-channel standard deviation of ``x_train / 255``; ``()`` for float data.
        class_names: one name per class, or ``()``.
        x_validation: as ``x_train``, or None; see :func:`fedjax_skew.data.holdout.with_validation`.
        y_validation: as ``y_train``, or None.
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
    x_validation: np.ndarray | None = None
    y_validation: np.ndarray | None = None

    @classmethod
    def from_arrays(
        cls,
        x_train: Any,
        y_train: Any,
        x_test: Any,
        y_test: Any,
        *,
        num_classes: int | None = None,
        client_ids: Any = None,
        class_names: Sequence[str] = (),
        name: str = "arrays",
    ) -> "Dataset":
        """Builds a checked dataset from arrays or nested lists.

        Integers of at least three axes are images with values in 0..255 and are stored as uint8;
        images without a channel axis get one. Everything else becomes float32. Channel statistics
        are computed from the training images.

        Args:
            x_train: training samples ``[N, H, W, C]``, ``[N, H, W]`` or ``[N, features]``.
            y_train: integer labels ``[N]`` that count from 0.
            x_test: as ``x_train``.
            y_test: as ``y_train``.
            num_classes: number of classes; default one more than the largest label.
            client_ids: integers ``[N]`` of any size, the natural client of every training sample.
            class_names: one name per class.
            name: the dataset's name in messages and reports.

        Raises:
            ValueError: one sentence naming the array that is wrong and what is allowed.
        """
        labels = {"y_train": y_train, "y_test": y_test}
        labels = {field: _as_labels(field, y) for field, y in labels.items()}
        if num_classes is None:
            num_classes = 1 + max((int(y.max(initial=0)) for y in labels.values()), default=0)
            _check_first_class(labels.values(), logged=False)
        if client_ids is not None:
            client_ids = np.asarray(client_ids)
        dataset = cls(
            name=name,
            x_train=_as_samples("x_train", x_train),
            x_test=_as_samples("x_test", x_test),
            num_classes=num_classes,
            client_ids=client_ids,
            class_names=tuple(class_names),
            **labels,
        )
        return validate(dataset)

    @functools.cached_property
    def hash(self) -> str:
        """The sha256 of everything that affects training, computed once."""
        digest = hashlib.sha256(f"{self.num_classes} {self.mean} {self.std}".encode())
        for field in dataclasses.fields(self):
            array = getattr(self, field.name)
            if isinstance(array, np.ndarray):
                digest.update(f"{field.name} {array.dtype} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def validate(dataset: Dataset) -> Dataset:
    """Checks a dataset and completes it.

    Channel statistics are computed if uint8 images have none, and client ids are renumbered from
    0. A warning is logged for labels that may be a mistake.

    Raises:
        ValueError: one sentence naming the array that is wrong and what is allowed.
    """
    check_arrays(dataset)
    _check_classes(dataset)
    for part in ("train", "test"):
        _check_pixel_range(f"x_{part}", getattr(dataset, f"x_{part}"))
    changes: dict[str, Any] = {}
    if dataset.x_train.dtype == np.uint8 and not dataset.mean:
        changes["mean"], changes["std"] = channel_statistics(dataset.x_train)
    if dataset.client_ids is not None:
        found, ids = np.unique(dataset.client_ids, return_inverse=True)
        if dataset.client_ids.dtype != np.int32 or len(found) <= found[-1] or found[0] < 0:
            changes["client_ids"] = ids.astype(np.int32)
    return dataclasses.replace(dataset, **changes) if changes else dataset


def check_arrays(dataset: Dataset) -> Dataset:
    """Checks dtypes, shapes and the range of the labels, and returns the dataset."""
    checks.whole(1).check("num_classes", dataset.num_classes)
    for part in ("train", "test", "validation"):
        x, y = getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}")
        if part == "validation" and x is None and y is None:
            continue
        _check_samples(f"x_{part}", x)
        _check_labels(f"y_{part}", y, len(x), dataset.num_classes)
        if x.dtype != dataset.x_train.dtype:
            raise ValueError(
                f"x_train is {dataset.x_train.dtype} but x_{part} is {x.dtype}; both must be uint8 "
                "or both float32."
            )
        if x.shape[1:] != dataset.x_train.shape[1:]:
            raise ValueError(
                f"x_train has samples of shape {dataset.x_train.shape[1:]} but x_{part} of shape "
                f"{x.shape[1:]}; they must be equal."
            )
    ids = dataset.client_ids
    if ids is not None and (ids.shape != dataset.y_train.shape or ids.dtype.kind not in "iu"):
        raise ValueError(
            f"client_ids is {ids.dtype} {list(ids.shape)} but must be integers "
            f"[{len(dataset.y_train)}], one natural client per training sample."
        )
    if dataset.class_names and len(dataset.class_names) != dataset.num_classes:
        raise ValueError(
            f"class_names has {len(dataset.class_names)} names for {dataset.num_classes} classes."
        )
    return dataset


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


def _as_samples(field: str, x: Any) -> np.ndarray:
    x = _as_array(field, x)
    if x.dtype.kind not in "iuf":
        raise ValueError(f"{field} has dtype {x.dtype}; allowed: uint8 images or floats.")
    if x.ndim not in (2, 3, 4) or (x.ndim == 2 and x.dtype == np.uint8):
        raise ValueError(
            f"{field} is {x.dtype} {list(x.shape)}; allowed shapes: [samples, height, width, "
            "channels], [samples, height, width], or float [samples, features]."
        )
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim == 4 and x.dtype.kind in "iu":
        if x.size and not 0 <= int(x.min()) <= int(x.max()) <= 255:
            raise ValueError(
                f"{field} is {x.dtype} with values in {x.min()}..{x.max()}; images of integers "
                "must have values in 0..255."
            )
        return np.ascontiguousarray(x, np.uint8)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, np.float32)


def _as_labels(field: str, y: Any) -> np.ndarray:
    y = _as_array(field, y)
    if y.ndim != 1 or (y.size and y.dtype.kind not in "iu"):
        raise ValueError(f"{field} is {y.dtype} {list(y.shape)}; one integer per sample is needed.")
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < 2**31:
        bad = y.min() if y.min() < 0 else y.max()
        raise ValueError(f"{field} holds the label {bad}; labels must count from 0.")
    return y.astype(np.int32)


def _as_array(field: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{field} cannot be made an array ({reason}).") from None


def _check_samples(field: str, x: np.ndarray) -> None:
    if not isinstance(x, np.ndarray) or x.dtype not in (np.uint8, np.float32):
        raise ValueError(
            f"{field} is {getattr(x, 'dtype', type(x).__name__)}; allowed: arrays of uint8 images "
            "or float32 (Dataset.from_arrays converts others)."
        )
    if x.ndim not in (2, 4) or (x.dtype == np.uint8 and x.ndim != 4):
        raise ValueError(
            f"{field} has shape {list(x.shape)}; allowed: [samples, height, width, channels] or "
            "float32 [samples, features]."
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
    if not isinstance(y, np.ndarray) or y.dtype != np.int32 or y.ndim != 1:
        what = f"{y.dtype} {list(y.shape)}" if isinstance(y, np.ndarray) else type(y).__name__
        raise ValueError(
            f"{field} is {what}; labels must be int32 [samples] (Dataset.from_arrays converts "
            "others)."
        )
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


def _check_classes(dataset: Dataset) -> None:
    """Checks that the labels make sense as classes, which a range check cannot tell."""
    train, test = np.unique(dataset.y_train), np.unique(dataset.y_test)
    seen = np.union1d(train, test)
    if len(seen) == 1:
        raise ValueError(
            f"All labels of dataset {dataset.name!r} are {seen[0]}; at least 2 classes are needed."
        )
    if 2 * len(seen) < seen[-1] + 1:
        shown = ", ".join(map(str, seen[:3]))
        raise ValueError(
            f"The labels of dataset {dataset.name!r} ({shown}, ...) use only {len(seen)} of the "
            f"numbers 0..{seen[-1]}; renumber them with "
            "numpy.searchsorted(numpy.unique(y_train), y)."
        )
    _check_first_class((train, test), logged=True)
    only_test = np.setdiff1d(test, train)
    if len(only_test):
        logging.warning(
            "%d classes of dataset %r have test samples but no training samples: %s.",
            len(only_test),
            dataset.name,
            ", ".join(map(str, only_test[:10])),
        )


def _check_first_class(labels: Any, *, logged: bool) -> None:
    """Raises or logs if labels seem to count from 1."""
    seen = np.unique(np.concatenate(list(labels)))
    if len(seen) and seen[0] == 1 and seen[-1] == len(seen):
        message = (
            f"The labels are 1..{seen[-1]} and class 0 has no sample; subtract 1 if they count "
            "from 1, or set num_classes if class 0 is meant."
        )
        if not logged:
            raise ValueError(message)
        logging.warning("%s", message)


def _check_pixel_range(field: str, x: np.ndarray) -> None:
    if x.dtype == np.float32 and x.ndim == 4 and x.min() >= 0 and 64 < x.max() <= 255:
        raise ValueError(
            f"{field} holds float images with values up to {x.max():g}; pass images with values in "
            "0..255 as uint8, which are standardised, or divide them by 255."
        )
