"""A part of every client's samples that it does not train on."""

import numpy as np
import pytest

from fedjax_skew.data.client_holdout import split_clients
from fedjax_skew.data.partition import Partition

LABELS = np.arange(60, dtype=np.int32) % 3


@pytest.fixture
def whole():
    lists = [np.arange(0, 40), np.arange(40, 59), [59]]
    return Partition.from_indices(lists, LABELS, 3)


def client(partition, k):
    return set(partition.order[partition.offsets[k] : partition.offsets[k + 1]].tolist())


def test_every_client_is_divided(whole):
    train, held = split_clients(whole, LABELS, 0.25, seed=0)
    assert np.diff(held.offsets).tolist() == [10, 4, 0]
    for k in range(3):
        assert client(train, k) | client(held, k) == client(whole, k)
        assert not client(train, k) & client(held, k)
    np.testing.assert_array_equal(train.class_counts + held.class_counts, whole.class_counts)


def test_samples_stay_sorted_by_class(whole):
    for part in split_clients(whole, LABELS, 0.5, seed=1):
        for k in range(3):
            labels = LABELS[part.order[part.offsets[k] : part.offsets[k + 1]]]
            assert (np.diff(labels) >= 0).all()
            counts = np.bincount(labels, minlength=3)
            np.testing.assert_array_equal(counts, part.class_counts[k])


def test_seeds_differ_and_a_client_keeps_one_sample(whole):
    train, _ = split_clients(whole, LABELS, 0.9, seed=0)
    assert np.diff(train.offsets).min() == 1
    other, _ = split_clients(whole, LABELS, 0.9, seed=1)
    assert train.hash != other.hash
    assert train.hash == split_clients(whole, LABELS, 0.9, seed=0)[0].hash
