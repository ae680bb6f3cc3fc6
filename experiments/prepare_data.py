r"""Prepares a dataset once, so that training reads it without TensorFlow.

TFDS datasets are downloaded and written as array_record. This needs
``pip install 'fedjax_skew[prepare]'``::

    python -m experiments.prepare_data --dataset=cifar10 --data_dir=~/tensorflow_datasets

Archives that were downloaded manually are used from ``--manual_dir`` if their checksums match.
FEMNIST, TinyImageNet, mini-ImageNet and the ImageNet subset are read from their published layout or
archive in ``--manual_dir``, and the decoded images are cached::

    python -m experiments.prepare_data --dataset=tiny_imagenet --manual_dir=~/Downloads
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from fedjax_skew.data import archive, cache, datasets, tfds_source
from fedjax_skew.data.catalog import REGISTRY
from fedjax_skew.data.dataset import Dataset


def prepare(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    manual_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    image_size: int | None = None,
) -> Dataset:
    """Prepares one dataset and returns it as training will load it.

    Raises:
        ValueError: if files are missing; the message says how to get them.
    """
    info = datasets.find(name)
    if info is not None and info.source == "none":
        raise ValueError(f"--dataset={name} needs no preparation; train with it directly.")
    options: dict[str, Any] = {"cache_dir": cache_dir}
    if image_size is not None:
        options["image_size"] = image_size
    if info is not None and info.source == "layout":
        place = manual_dir or data_dir
        unpack(info.archive, Path(place or tfds_source.default_dir()).expanduser())
        return _load(name, data_dir=place, **options)
    root = Path(data_dir).expanduser() if data_dir else tfds_source.default_dir()
    prepare_tfds(name, root, manual_dir)
    return _load(name, data_dir=root, **options)


def _load(name: str, **options: Any) -> Dataset:
    """Loads a dataset and warns if it seems to be incomplete."""
    dataset = datasets.load(name, **options)
    info = REGISTRY.get(name.split(":")[0])
    if info is not None and dataset.num_classes != info.num_classes:
        logging.warning(
            "%s has %d classes but the published dataset has %d; files seem to be missing.",
            name,
            dataset.num_classes,
            info.num_classes,
        )
    return dataset


def prepare_tfds(name: str, data_dir: Path, manual_dir: str | os.PathLike[str] | None) -> None:
    """Writes a TFDS dataset as array_record, from a download or from ``manual_dir``."""
    if tfds_source.is_prepared(name, data_dir):
        return
    if not tfds_source.is_known(name):
        raise datasets.unknown(name)
    if importlib.util.find_spec("tensorflow") is None:
        raise ValueError(
            f"Preparing {name} needs TensorFlow, which is not installed: "
            "pip install 'fedjax_skew[prepare]' (training does not need it)."
        )
    if manual_dir is not None and not Path(manual_dir).expanduser().is_dir():
        raise ValueError(f"--manual_dir={os.fspath(manual_dir)} is not a directory.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tfds = tfds_source.import_tfds()
    config = tfds.download.DownloadConfig(
        manual_dir=Path(manual_dir).expanduser() if manual_dir is not None else None
    )
    try:
        builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
        builder.download_and_prepare(
            download_config=config, file_format=tfds.core.FileFormat.ARRAY_RECORD
        )
    except tfds.core.DatasetNotFoundError:
        raise datasets.unknown(name) from None
    except Exception as error:  # Downloads can fail in many ways.
        reason = " ".join(str(error).split())[:400]
        raise ValueError(
            f"TFDS could not prepare {name} in {data_dir} ({type(error).__name__}: {reason}); "
            "without a network, download the archive elsewhere and pass its directory as "
            "--manual_dir."
        ) from error


def unpack(stem: str, folder: Path) -> None:
    """Unpacks ``stem.zip`` or ``stem.tar...`` into ``stem``, unless that was done before."""
    target = folder / stem
    for suffix in archive.SUFFIXES:
        packed = folder / f"{stem}{suffix}"
        if packed.is_file() and not target.exists():
            print(f"Unpacking {packed} ...")
            archive.extract(packed, target)
            inner = [p for p in target.iterdir() if not p.name.startswith(".")]
            if len(inner) == 1 and inner[0].name == target.name:
                # The archive contains the folder itself; remove the additional level.
                inner[0].rename(folder / f".{target.name}")
                target.rmdir()
                (folder / f".{target.name}").rename(target)
            return


def define_flags() -> None:
    """Defines the flags. This is not done at import because other binaries use the same names."""
    flags.DEFINE_string("dataset", None, "Name of the dataset; see --list.")
    flags.DEFINE_string(
        "data_dir", None, "Directory of TFDS; default $TFDS_DATA_DIR, else ~/tensorflow_datasets."
    )
    flags.DEFINE_string("manual_dir", None, "Directory with manually downloaded files.")
    flags.DEFINE_string(
        "cache_dir",
        None,
        "Directory of decoded data; default $FEDJAX_SKEW_CACHE, else ~/.cache/fedjax_skew.",
    )
    flags.DEFINE_integer("image_size", None, "Resize to this many pixels per side.")
    flags.DEFINE_bool("list", False, "List the datasets, and exit.")


def main(argv: Sequence[str]) -> None:
    """Lists the datasets, or prepares one."""
    values = flags.FLAGS
    if values.list:
        for name, description in datasets.names().items():
            print(f"{name:18s} {description}")
        return
    try:
        if len(argv) > 1:
            raise ValueError(f"{argv[1]!r} is not a flag; pass the dataset as --dataset=NAME.")
        if not values.dataset:
            raise ValueError("dataset is not set; choose it with --dataset=NAME, see --list.")
        dataset = prepare(
            values.dataset,
            data_dir=values.data_dir,
            manual_dir=values.manual_dir,
            cache_dir=values.cache_dir,
            image_size=values.image_size,
        )
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(
        f"{dataset.name}: {len(dataset.x_train)} training and {len(dataset.x_test)} test samples "
        f"of shape {dataset.x_train.shape[1:]}, {dataset.num_classes} classes; "
        f"decoded in {cache.directory(values.cache_dir)}"
    )


if __name__ == "__main__":
    define_flags()
    app.run(main)
