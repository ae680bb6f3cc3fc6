"""Decoding of images into one uint8 array, with Pillow and several threads."""

import io
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_skew.errors import import_extra

_BLOCK = 256
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def decode(
    data: bytes | Path, *, channels: int = 3, size: tuple[int, int] | None = None
) -> np.ndarray:
    """Decodes one image.

    Args:
        data: the encoded bytes, or the file that contains them.
        channels: 1 (grey), 3 or 4.
        size: (height, width) to which the whole image is resized without preserving its aspect
            ratio, as in mini-ImageNet and downsampled ImageNet; None keeps the size.

    Returns:
        uint8 ``[height, width, channels]``.

    Raises:
        ValueError: if the data is not an image that Pillow can read.
    """
    Image = import_extra("PIL.Image", "data")
    try:
        stream = io.BytesIO(data) if isinstance(data, bytes) else data
        with Image.open(stream, formats=("PNG", "JPEG")) as image:
            if size is not None and size != (image.height, image.width):
                # A JPEG can be decoded at a reduced size, here at least twice the needed one.
                image.draft(None, (2 * size[1], 2 * size[0]))
            picture = image if image.mode == _MODES[channels] else image.convert(_MODES[channels])
            if size is not None and size != (picture.height, picture.width):
                picture = picture.resize((size[1], size[0]), Image.Resampling.LANCZOS)
            pixels = np.asarray(picture)
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        what = f"The image {data}" if isinstance(data, Path) else "An image"
        raise ValueError(f"{what} cannot be decoded ({error}).") from None
    return pixels[..., None] if pixels.ndim == 2 else pixels


def progress(title: str, total: int) -> Any:
    """Returns a progress bar on stderr that appears if decoding takes more than two seconds."""
    return import_extra("tqdm", "data").tqdm(
        total=total,
        desc=f"Decoding {title}",
        unit=" images",
        delay=2,
        mininterval=0.2 if sys.stderr.isatty() else 10,
        leave=False,
    )


def decode_files(title: str, paths: Sequence[Path], *, size: tuple[int, int]) -> np.ndarray:
    """Decodes files into uint8 ``[len(paths), *size, 3]``, in the given order."""
    out = np.empty((len(paths), *size, 3), np.uint8)

    def work(start: int) -> None:
        for index in range(start, min(start + _BLOCK, len(paths))):
            out[index] = decode(paths[index], size=size)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool, progress(title, len(paths)) as bar:
        for _ in pool.map(work, range(0, len(paths), _BLOCK)):
            bar.update(min(_BLOCK, len(paths) - bar.n))
    return out
