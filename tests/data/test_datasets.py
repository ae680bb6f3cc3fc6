"""The common form of a dataset and the door to all of them."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from fedjax_skew.data import datasets


def make(**changes):
    x = np.zeros((4, 2, 2, 1), np.uint8)
    y = np.array([0, 1, 0, 1], np.int32)
    return dataclasses.replace(datasets.Dataset("d", x, y, x[:2], y[:2], 2), **changes)


def test_a_correct_dataset_passes():
    dataset = make(client_ids=np.zeros(4, np.int32))
    assert datasets.validate(dataset) is dataset


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, "num_classes=0"),
        ({"num_classes": 1}, "label 1"),
        ({"x_train": np.zeros((4, 2, 2), np.uint8)}, "x_train has shape"),
        ({"x_train": np.zeros((4, 2, 2, 1), np.float64)}, "float64"),
        ({"x_train": np.zeros((4, 2, 0, 1), np.uint8)}, "at least one entry"),
        ({"x_test": np.zeros((2, 2, 2, 1), np.float32)}, "both"),
        ({"x_test": np.full((2, 4), np.inf, np.float32)}, "x_test holds NaN or infinite"),
        ({"x_test": np.zeros((2, 3, 2, 1), np.uint8)}, "must be equal"),
        ({"y_train": np.zeros(3, np.int32)}, "3 labels for 4 samples"),
        ({"y_train": np.zeros(4, np.int64)}, "int64"),
        ({"y_test": np.array([0, -1], np.int32)}, "label -1"),
        ({"client_ids": np.zeros(3, np.int32)}, "client_ids"),
        ({"client_ids": np.full(4, -1, np.int32)}, "negative"),
    ],
)
def test_wrong_arrays_are_named(changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        datasets.validate(make(**changes))
    assert "\n" not in str(caught.value)


def test_channel_statistics_are_exact():
    x = np.random.default_rng(0).integers(0, 256, (5000, 3, 4, 2), dtype=np.uint8)
    mean, std = datasets.channel_statistics(x)
    np.testing.assert_allclose(mean, (x / 255).mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, (x / 255).std(axis=(0, 1, 2)), rtol=1e-12)


def test_constant_channels_can_still_be_divided_by():
    assert datasets.channel_statistics(np.full((3, 2, 2, 1), 7, np.uint8))[1] == (1.0,)


def test_names_have_descriptions():
    listing = datasets.names()
    assert {"synthetic", "npz", "mnist", "emnist/balanced", "femnist"} <= set(listing)
    assert all(listing.values())
    assert set(datasets.OWN_LAYOUTS) <= set(listing)


def test_importing_sources_and_partitions_is_light():
    code = (
        "import sys, fedjax_skew.data.datasets, fedjax_skew.data.partition;"
        "sys.exit(any(m in sys.modules for m in ('jax', 'tensorflow_datasets', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
