"""Conversion, validation and channel statistics of arrays of samples and labels."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from absl import logging

_CHUNK = 4096


def channel_statistics(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and standard deviation per channel of ``x / 255``; ``((), ())`` for float data.

    They are computed from exact histograms, so that they do not depend on the order of summation. A
    constant channel has a standard deviation of 1, because samples are divided by it.
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


def as_samples(field: str, x: Any) -> np.ndarray:
    """Converts samples to uint8 ``[N, H, W, C]`` or float32 ``[N, ...]``."""
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
        if x.dtype != np.uint8 and x.size and not 0 <= int(x.min()) <= int(x.max()) <= 255:
            raise ValueError(
                f"{field} is {x.dtype} with values in {x.min()}..{x.max()}; images of integers "
                "must have values in 0..255."
            )
        return np.ascontiguousarray(x, np.uint8)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, np.float32)


def as_labels(field: str, y: Any) -> np.ndarray:
    """Converts labels to int32 ``[N]``."""
    y = _as_array(field, y)
    if y.ndim != 1 or (y.size and y.dtype.kind not in "iu"):
        raise ValueError(f"{field} is {y.dtype} {list(y.shape)}; one integer per sample is needed.")
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < 2**31:
        bad = y.min() if y.min() < 0 else y.max()
        raise ValueError(f"{field} holds the label {bad}; labels must count from 0.")
    return y.astype(np.int32, copy=False)


def _as_array(field: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{field} cannot be made an array ({reason}).") from None


def check_samples(field: str, x: np.ndarray) -> None:
    """Raises unless samples are uint8 images or finite float32."""
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


def check_labels(field: str, y: np.ndarray, samples: int, num_classes: int) -> None:
    """Raises unless there is one int32 label in ``[0, num_classes)`` per sample."""
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


def check_first_class(labels: Iterable[np.ndarray], *, logged: bool) -> None:
    """Raises an error or logs a warning if labels seem to start at 1."""
    seen = np.unique(np.concatenate(list(labels)))
    if len(seen) and seen[0] == 1 and seen[-1] == len(seen):
        message = (
            f"The labels are 1..{seen[-1]} and class 0 has no sample; subtract 1 if they count "
            "from 1, or set num_classes if class 0 is meant."
        )
        if not logged:
            raise ValueError(message)
        logging.warning("%s", message)


def check_pixel_range(field: str, x: np.ndarray) -> None:
    """Raises if float images have values in the range of bytes."""
    if x.dtype == np.float32 and x.ndim == 4 and x.min() >= 0 and 64 < x.max() <= 255:
        raise ValueError(
            f"{field} holds float images with values up to {x.max():g}; pass images with values in "
            "0..255 as uint8, which are standardised, or divide them by 255."
        )
