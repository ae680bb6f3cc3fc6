"""The registry of datasets and loading by name."""

import subprocess
import sys

import numpy as np
import pytest

from fedjax_skew.data import catalog, datasets
from fedjax_skew.data.dataset import Dataset


def test_names_have_descriptions():
    listing = datasets.names()
    assert {"synthetic", "npz", "leaf", "mnist", "emnist/balanced", "femnist"} <= set(listing)
    assert all(listing.values())
    assert "60,000 + 10,000" in listing["mnist"]


@pytest.mark.parametrize("info", catalog.REGISTRY.values(), ids=lambda info: info.name)
def test_every_entry_is_complete_and_its_reader_exists(info):
    assert callable(datasets._reader(info.name))
    assert info.title
    assert (info.source == "layout") == bool(info.archive)
    if info.num_train:
        assert info.num_test and info.shape and info.num_classes
    assert len(info.mean) in (0, info.shape[-1] if info.shape else 0)


def test_papers_names_lead_to_the_entry():
    assert datasets.find("cifar10_lt").name == "cifar10"
    assert datasets.find("svhn").name == "svhn_cropped"
    assert datasets.find("synthetic(0.5, 0.5)").name == "synthetic"
    assert datasets.find("nothing") is None
    assert datasets.title("cifar10_lt") == "CIFAR-10-LT"
    assert datasets.title("cifar10") == "CIFAR-10"
    assert datasets.title("synthetic(1,1)") == "synthetic(1,1)"
    assert datasets.title("nothing") == "nothing"


def test_a_registered_reader_gets_what_its_signature_asks_for(monkeypatch):
    monkeypatch.setattr(catalog, "REGISTRY", dict(catalog.REGISTRY))
    monkeypatch.setattr(datasets, "REGISTRY", catalog.REGISTRY)

    def read(seed, num_clients, path=None, scale=1.0):
        x = np.full((num_clients, 2), scale * seed, np.float32)
        y = np.arange(num_clients, dtype=np.int32) % 2
        return Dataset("toy", x, y, x, y, 2)

    catalog.register(catalog.DatasetInfo("toy", "Toy", "a toy", reader=read, source="none"))
    assert "toy" in datasets.names()
    dataset = datasets.load("toy", seed=3, num_clients=5, scale=2.0)
    assert dataset.x_train.shape == (5, 2)
    assert dataset.x_train[0, 0] == 6
    with pytest.raises(ValueError, match="whose options are: scale"):
        datasets.load("toy", image_size=3)
    with pytest.raises(ValueError, match="registered"):
        catalog.register(catalog.REGISTRY["toy"])


def test_importing_datasets_and_partitions_is_light():
    code = (
        "import sys, fedjax_skew.data.datasets, fedjax_skew.data.partition;"
        "sys.exit(any(m in sys.modules for m in ('jax', 'tensorflow_datasets', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
