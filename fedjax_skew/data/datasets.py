"""Loading datasets by name; what is known about each is in :mod:`fedjax_skew.data.catalog`."""

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

from fedjax_skew import errors
from fedjax_skew.data.catalog import REGISTRY, DatasetInfo
from fedjax_skew.data.dataset import Dataset, check_arrays

_CONTEXT = ("name", "data_dir", "path", "seed", "num_clients")


def names() -> dict[str, str]:
    """Returns every registered name with one line of description.

    Any other TFDS image classification name works too once it is prepared.
    """
    return {info.name: info.description for info in REGISTRY.values()}


def find(name: str) -> DatasetInfo | None:
    """Returns the entry of a name, of ``name(...)`` or of a paper's name; None if there is none."""
    name = name.split("(")[0].strip()
    if name in REGISTRY:
        return REGISTRY[name]
    return next((info for info in REGISTRY.values() if name in info.aliases), None)


def title(name: str) -> str:
    """Returns how a dataset is written in tables and figures; other names stay as they are."""
    info = find(name)
    return {info.name: info.title, **info.aliases}.get(name, name) if info else name


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    seed: int = 0,
    num_clients: int = 100,
    **options: Any,
) -> Dataset:
    """Loads a dataset by name.

    Args:
        name: one of :func:`names`, ``synthetic(lambda, mu)``, or any prepared TFDS image
            classification name.
        data_dir: where TFDS data is prepared or where published files lie; default TFDS's own
            directory (``$TFDS_DATA_DIR``, else ``~/tensorflow_datasets``).
        path: the file or directory of a dataset of your own (``npz``, ``leaf``).
        seed: draws the synthetic data; other datasets do not depend on it.
        num_clients: number of clients of the synthetic data.
        **options: what the reader of this dataset takes: ``num_classes`` (npz, leaf),
            ``image_size``, ``cache_dir`` (everything decoded from images), ``synsets``
            (imagenet_subset12).

    Returns:
        A checked dataset.

    Raises:
        ValueError: one sentence that says what is wrong or missing and how to fix it.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(
            f"dataset.name={name!r} must be a name; allowed: {', '.join(sorted(REGISTRY))}."
        )
    name = name.strip()
    reader = _reader(name)
    accepted = inspect.signature(reader).parameters
    if path is not None and "path" not in accepted:
        raise ValueError(
            f"dataset.path={os.fspath(path)!r} does not apply to dataset.name={name!r}."
        )
    own = [option for option in accepted if option not in _CONTEXT]
    for option in options:
        if option not in own:
            raise ValueError(
                f"dataset.{option}={options[option]!r} does not apply to dataset.name={name!r}, "
                f"whose options are: {', '.join(own) or 'none'}."
            )
    values = (name, data_dir, path, seed, num_clients)
    context = {k: v for k, v in zip(_CONTEXT, values, strict=True) if k in accepted}
    return check_arrays(reader(**context, **options))


def unknown(name: str) -> ValueError:
    """Builds the error for a name that is neither registered nor a dataset of TFDS."""
    return errors.unknown("dataset.name", name, REGISTRY)


def _reader(name: str) -> Callable[..., Dataset]:
    info = REGISTRY.get(name) or REGISTRY.get(name.split("(")[0].strip())
    reader = DatasetInfo.reader if info is None else info.reader
    if not isinstance(reader, str):
        return reader
    module, function = reader.split(":")
    return getattr(importlib.import_module(f"fedjax_skew.data.{module}"), function)
