"""Loading of datasets by name; :mod:`fedjax_skew.data.catalog` describes each of them."""

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
    """Returns every registered name with a one-line description.

    Any other image classification dataset of TFDS can be used once it is prepared.
    """
    return {info.name: info.description for info in REGISTRY.values()}


def find(name: str) -> DatasetInfo | None:
    """Returns the entry of ``name``, ``name(...)`` or an alias, or None if there is none."""
    name = name.split("(")[0].strip()
    if name in REGISTRY:
        return REGISTRY[name]
    return next((info for info in REGISTRY.values() if name in info.aliases), None)


def title(name: str) -> str:
    """Returns the title of a dataset for tables and figures; unknown names are not changed."""
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
        name: one of :func:`names`, ``synthetic(lambda, mu)``, or the name of any prepared image
            classification dataset of TFDS.
        data_dir: directory of prepared TFDS data or of published files; TFDS's own directory by
            default (``$TFDS_DATA_DIR``, otherwise ``~/tensorflow_datasets``).
        path: the file or directory of a user-provided dataset (``npz``, ``leaf``).
        seed: random seed of the synthetic data; other datasets do not depend on it.
        num_clients: number of clients of the synthetic data.
        **options: options of the dataset's reader: ``num_classes`` (npz, leaf), ``image_size``
            and ``cache_dir`` (datasets decoded from images), ``synsets`` (imagenet_subset12).

    Returns:
        A validated dataset.

    Raises:
        ValueError: if the name or an option is invalid, or the data is missing or damaged.
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
