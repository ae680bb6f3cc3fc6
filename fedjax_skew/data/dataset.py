"""The format of all datasets, and how to build one from arrays.

:meth:`Dataset.from_arrays` accepts anything that numpy can convert to an array. The readers of
files build :class:`Dataset` directly. :func:`validate` checks both.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from fedjax_skew import checks
from fedjax_skew.data import arrays


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A classification dataset in host memory or in memory-mapped files.

    Attributes:
        name: the name by which the dataset was loaded.
        x_train: uint8 ``[N, H, W, C]`` images or float32 ``[N, ...]``.
        y_train: int32 ``[N]``, values in ``[0, num_classes)``. :func:`validate` converts arrays of
            other dtypes.
        x_test: as ``x_train``.
        y_test: as ``y_train``.
        num_classes: number of classes.
        client_ids: int ``[N]``, the natural client of every training sample, or None.
        mean: per-channel mean of ``x_train / 255``; ``()`` for float data, which is not normalised.
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
        """Builds a validated dataset from arrays or nested lists.

        Integer arrays with at least three axes are images with values in 0..255 and are stored as
        uint8; a channel axis is added to images without one. Everything else is converted to
        float32. Channel statistics are computed from the training images.

        Args:
            x_train: training samples ``[N, H, W, C]``, ``[N, H, W]`` or ``[N, features]``.
            y_train: integer labels ``[N]``, starting at 0.
            x_test: as ``x_train``.
            y_test: as ``y_train``.
            num_classes: number of classes; one more than the largest label by default.
            client_ids: arbitrary integers ``[N]``, the natural client of every training sample.
            class_names: one name per class.
            name: the dataset's name in messages and reports.

        Raises:
            ValueError: if an array is invalid; the message names the array and what is allowed.
        """
        labels = {"y_train": y_train, "y_test": y_test}
        labels = {field: arrays.as_labels(field, y) for field, y in labels.items()}
        if num_classes is None:
            num_classes = 1 + max((int(y.max(initial=0)) for y in labels.values()), default=0)
            arrays.check_first_class(labels.values(), logged=False)
        if client_ids is not None:
            client_ids = np.asarray(client_ids)
        dataset = cls(
            name=name,
            x_train=arrays.as_samples("x_train", x_train),
            x_test=arrays.as_samples("x_test", x_test),
            num_classes=num_classes,
            client_ids=client_ids,
            class_names=tuple(class_names),
            **labels,
        )
        return validate(dataset)

    @functools.cached_property
    def hash(self) -> str:
        """The SHA-256 hash of everything that affects training, computed once."""
        digest = hashlib.sha256(f"{self.num_classes} {self.mean} {self.std}".encode())
        for field in dataclasses.fields(self):
            array = getattr(self, field.name)
            if isinstance(array, np.ndarray):
                digest.update(f"{field.name} {array.dtype} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def validate(dataset: Dataset) -> Dataset:
    """Validates a dataset and completes it.

    Arrays of other dtypes are converted as by ``Dataset.from_arrays``, channel statistics are
    computed if uint8 images have none, and client ids are renumbered from 0. A warning is logged
    for labels that may be a mistake.

    Raises:
        ValueError: if an array is invalid; the message names the array and what is allowed.
    """
    dataset = _converted(dataset)
    check_arrays(dataset)
    _check_classes(dataset)
    for part in ("train", "test"):
        arrays.check_pixel_range(f"x_{part}", getattr(dataset, f"x_{part}"))
    changes: dict[str, Any] = {}
    if dataset.x_train.dtype == np.uint8 and not dataset.mean:
        changes["mean"], changes["std"] = arrays.channel_statistics(dataset.x_train)
    if dataset.client_ids is not None:
        found, ids = np.unique(dataset.client_ids, return_inverse=True)
        if dataset.client_ids.dtype != np.int32 or len(found) <= found[-1] or found[0] < 0:
            changes["client_ids"] = ids.astype(np.int32)
    return dataclasses.replace(dataset, **changes) if changes else dataset


def _converted(dataset: Dataset) -> Dataset:
    """Returns the dataset with arrays of the documented dtypes and ranks."""
    changes: dict[str, Any] = {}
    for field in ("x_train", "x_test", "x_validation", "y_train", "y_test", "y_validation"):
        old = getattr(dataset, field)
        if old is not None:
            new = (arrays.as_samples if field[0] == "x" else arrays.as_labels)(field, old)
            if new is not old:
                changes[field] = new
    return dataclasses.replace(dataset, **changes) if changes else dataset


def check_arrays(dataset: Dataset) -> Dataset:
    """Checks dtypes, shapes and the range of the labels, and returns the dataset."""
    checks.whole(1).check("num_classes", dataset.num_classes)
    for part in ("train", "test", "validation"):
        x, y = getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}")
        if part == "validation" and x is None and y is None:
            continue
        arrays.check_samples(f"x_{part}", x)
        arrays.check_labels(f"y_{part}", y, len(x), dataset.num_classes)
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


def _check_classes(dataset: Dataset) -> None:
    """Checks that the labels are plausible as classes, beyond their range."""
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
    arrays.check_first_class((train, test), logged=True)
    only_test = np.setdiff1d(test, train)
    if len(only_test):
        logging.warning(
            "%d classes of dataset %r have test samples but no training samples: %s.",
            len(only_test),
            dataset.name,
            ", ".join(map(str, only_test[:10])),
        )
