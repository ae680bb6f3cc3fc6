"""The registry of datasets, with one entry per dataset that contains all information about it.

To add a dataset, add its entry here, or call :func:`register` from your own code. A reader is a
function that returns a ``Dataset``. Its signature declares which of ``name``, ``data_dir``,
``path``, ``seed`` and ``num_clients`` it needs, and its own options. A reader that is given as text
is imported when it is used, so that listing the datasets is fast.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from fedjax_skew.data.dataset import Dataset


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """The description of a dataset.

    Attributes:
        name: the name by which the dataset is loaded.
        title: the name in tables and figures.
        about: a short description of the content and origin.
        reader: a function that returns a ``Dataset``, or ``"module:function"``.
        source: ``tfds``, a published ``layout`` of files to be downloaded by hand, or ``none`` if
            nothing has to be prepared.
        num_train: number of training samples; 0 if it depends on the data.
        num_test: number of test samples.
        shape: shape of one sample.
        num_classes: number of classes.
        mean: channel means of the published training images, or ``()``.
        archive: name of the published archive without its suffix.
        aliases: names that papers use for the dataset, with their titles.
    """

    name: str
    title: str
    about: str
    reader: Callable[..., Dataset] | str = "tfds_source:load"
    source: Literal["tfds", "layout", "none"] = "tfds"
    num_train: int = 0
    num_test: int = 0
    shape: tuple[int, ...] = ()
    num_classes: int = 0
    mean: tuple[float, ...] = ()
    archive: str = ""
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def description(self) -> str:
        """A one-line description of the origin, content and size."""
        origin = {"tfds": "TFDS", "layout": "published files", "none": ""}[self.source]
        words = [origin, self.about]
        if self.num_train:
            words.append(f"{self.num_train:,} + {self.num_test:,} samples")
            words.append("x".join(map(str, self.shape)))
        if self.num_classes:
            words.append(f"{self.num_classes} classes")
        return ", ".join(word for word in words if word)


REGISTRY: dict[str, DatasetInfo] = {}


def register(info: DatasetInfo) -> None:
    """Adds a dataset to the registry, so that configurations can refer to it by name."""
    if info.name in REGISTRY:
        raise ValueError(f"The dataset {info.name!r} is already registered.")
    REGISTRY[info.name] = info


for _info in (
    DatasetInfo(
        "synthetic",
        "Synthetic",
        "Synthetic(lambda, mu) with natural clients, written synthetic(0.5,0.5)",
        reader="synthetic:load",
        source="none",
        num_train=75_000,
        num_test=8_500,
        shape=(60,),
        num_classes=10,
    ),
    DatasetInfo(
        "npz",
        "npz",
        "your own .npz file (dataset.path) with x_train, y_train, x_test, y_test [, client_ids]",
        reader="npz:load",
        source="none",
    ),
    DatasetInfo(
        "leaf",
        "LEAF",
        "your own LEAF JSON files (dataset.path) with users and user_data, natural clients",
        reader="leaf:load",
        source="none",
    ),
    DatasetInfo(
        "mnist",
        "MNIST",
        "digits",
        num_train=60_000,
        num_test=10_000,
        shape=(28, 28, 1),
        num_classes=10,
        mean=(0.1307,),
    ),
    DatasetInfo(
        "fashion_mnist",
        "Fashion-MNIST",
        "clothes",
        num_train=60_000,
        num_test=10_000,
        shape=(28, 28, 1),
        num_classes=10,
        mean=(0.2860,),
    ),
    DatasetInfo(
        "emnist/balanced",
        "EMNIST",
        "characters, turned upright",
        num_train=112_800,
        num_test=18_800,
        shape=(28, 28, 1),
        num_classes=47,
        aliases={"emnist": "EMNIST"},
    ),
    DatasetInfo(
        "cifar10",
        "CIFAR-10",
        "photographs",
        num_train=50_000,
        num_test=10_000,
        shape=(32, 32, 3),
        num_classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        aliases={"cifar10_lt": "CIFAR-10-LT"},
    ),
    DatasetInfo(
        "cifar100",
        "CIFAR-100",
        "photographs",
        num_train=50_000,
        num_test=10_000,
        shape=(32, 32, 3),
        num_classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        aliases={"cifar100_lt": "CIFAR-100-LT"},
    ),
    DatasetInfo(
        "svhn_cropped",
        "SVHN",
        "house numbers",
        num_train=73_257,
        num_test=26_032,
        shape=(32, 32, 3),
        num_classes=10,
        mean=(0.4377, 0.4438, 0.4728),
        aliases={"svhn": "SVHN"},
    ),
    DatasetInfo(
        "femnist",
        "FEMNIST",
        "LEAF's characters with their writers as natural clients (sizes of about 100 writers)",
        reader="leaf:load_femnist",
        source="layout",
        num_train=20_000,
        num_test=4_000,
        shape=(28, 28, 1),
        num_classes=62,
        archive="femnist",
    ),
    DatasetInfo(
        "tiny_imagenet",
        "TinyImageNet",
        "TinyImageNet-200 folders",
        reader="image_folders:load_tiny_imagenet",
        source="layout",
        num_train=100_000,
        num_test=10_000,
        shape=(64, 64, 3),
        num_classes=200,
        archive="tiny-imagenet-200",
    ),
    DatasetInfo(
        "mini_imagenet",
        "mini-ImageNet",
        "CSV splits or folders",
        reader="image_folders:load_mini_imagenet",
        source="layout",
        num_train=50_000,
        num_test=5_000,
        shape=(84, 84, 3),
        num_classes=100,
        archive="mini-imagenet",
    ),
    DatasetInfo(
        "imagenet_subset12",
        "ImageNet-12",
        "12 ImageNet synset folders, resized",
        reader="image_folders:load_imagenet_subset12",
        source="layout",
        num_train=15_600,
        num_test=600,
        shape=(64, 64, 3),
        num_classes=12,
        archive="imagenet_subset12",
    ),
):
    register(_info)
