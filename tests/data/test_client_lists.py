"""Exact partitions: lists of indices in memory and in files, in and out."""

import json

import numpy as np
import pytest

from fedjax_skew.data import client_lists
from fedjax_skew.data.partition import Partition, partition

LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])


def divide(path, **changes):
    arguments = {"num_clients": 3, "num_classes": 3, "seed": 0, **changes}
    return partition(f'file(path="{path}")', LABELS, **arguments)


def test_index_lists_become_a_partition():
    result = Partition.from_indices([[9, 0, 1], np.array([2]), (4, 3)], LABELS)
    np.testing.assert_array_equal(result.order, [0, 9, 1, 2, 3, 4])
    np.testing.assert_array_equal(result.offsets, [0, 3, 4, 6])
    np.testing.assert_array_equal(result.class_counts, [[2, 1, 0], [0, 0, 1], [1, 1, 0]])
    assert len(result.labelled) == len(result.unlabelled) == 0
    result.check(LABELS, 3)


def test_client_ids_of_any_size_become_a_partition():
    ids = np.array([2**62, -5, 2**62, -5, 7, 7, 7, 7, -5, 2**62])
    result = Partition.from_client_ids(ids, LABELS, num_classes=4)
    np.testing.assert_array_equal(np.split(result.order, result.offsets[1:-1])[0], [3, 1, 8])
    np.testing.assert_array_equal(np.diff(result.offsets), [3, 4, 3])
    assert result.class_counts.shape == (3, 4)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[0, 1], [10]], r"index 10 for client 1.*0\.\.9"),
        ([[0, -1], [2]], "index -1 for client 0"),
        ([[0, 1], [2, 1]], "index 1 2 times, for clients 0 and 1"),
        ([[0, 0], [2]], "index 0 2 times, for clients 0 and 0"),
        ([[0, 1], []], "no sample for client 1"),
        ([[0.5], [1]], "whole numbers for client 0"),
        ([["a"], [1]], "whole numbers for client 0"),
        ([[0], [[1], [2]]], "whole numbers for client 1"),
        ([[0], "12"], "whole numbers for client 1"),
        ([[0], [10**30]], "whole numbers for client 1"),
        ([], "no client"),
    ],
)
def test_wrong_lists_are_one_sentence(lists, message):
    with pytest.raises(ValueError, match=message) as caught:
        Partition.from_indices(lists, LABELS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ids", [[0, 1], [0.5] * 10, [["a"] * 10]])
def test_wrong_client_ids_are_one_sentence(ids):
    with pytest.raises(ValueError, match="client_ids is"):
        Partition.from_client_ids(np.array(ids), LABELS)


def test_a_partition_of_other_labels_is_noticed():
    result = Partition.from_indices([[0, 1], [2]], LABELS)
    with pytest.raises(ValueError, match="other labels"):
        result.check(LABELS[::-1].copy(), 3)
    with pytest.raises(ValueError, match="other labels"):
        result.check(LABELS[:2], 3)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_saved_partition_is_read_back_exactly(tmp_path, suffix):
    drawn = partition(
        "dirichlet(0.5, min_size=1)", LABELS, num_clients=3, num_classes=3, seed=0, unlabelled=0.1
    )
    path = tmp_path / f"clients{suffix}"
    client_lists.save_partition(path, drawn)
    assert divide(path, unlabelled=0.1).hash == drawn.hash


@pytest.mark.parametrize(
    "content",
    [
        [[1, 0], [2, 3], [9]],
        {"0": [0, 1], "2": [9], "1": [2, 3]},
        {"client_10": [9], "client_9": [2, 3], "client_0": [0, 1]},
        {"a": [0, 1], "c": [2, 3], "b": [9]},
    ],
)
def test_published_json_forms_are_read(tmp_path, content):
    path = tmp_path / "clients.json"
    path.write_text(json.dumps(content))
    result = divide(path)
    np.testing.assert_array_equal(result.order, [0, 1, 3, 2, 9])
    np.testing.assert_array_equal(result.offsets, [0, 2, 4, 5])


def test_npz_with_one_array_per_client_is_read(tmp_path):
    path = tmp_path / "clients.npz"
    np.savez(path, np.array([0, 1]), np.array([2, 3], np.uint8), np.array([9]))
    np.testing.assert_array_equal(divide(path).order, [0, 1, 3, 2, 9])


def test_samples_that_the_server_took_are_left_out(tmp_path):
    path = tmp_path / "clients.json"
    path.write_text(json.dumps([list(range(5)), list(range(5, 10))]))
    result = divide(path, num_clients=2, unlabelled=0.3)
    assert len(result.order) == 7
    assert not set(result.order) & set(result.unlabelled)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[0, 1], [2]]", "num_clients=3 does not match .* lists 2 clients"),
        ("[[0, 1], [2], [10]]", "index 10 for client 2"),
        ("[[0, 1], [2], [2]]", "index 2 2 times"),
        ("[[0, 1], [], [2]]", "no sample for client 1"),
        ("[0, 1]", "unknown format"),
        ("[[0, 1", "unknown format"),
        ("3", "unknown format"),
        ("PK nothing", "unknown format"),
    ],
)
def test_wrong_files_are_one_sentence(tmp_path, content, message):
    path = tmp_path / "clients.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        divide(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_exist_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        divide(tmp_path / "nothing.npz")
    with pytest.raises(ValueError, match=r"\.json or \.npz"):
        client_lists.save_partition(tmp_path / "x.csv", Partition.from_indices([[0]], LABELS))


@pytest.mark.parametrize(
    "arrays", [{"order": [0, 1], "offsets": [0, 3]}, {"order": [0, 1], "offsets": [0.0, 2.0]}]
)
def test_wrong_offsets_are_an_unknown_format(tmp_path, arrays):
    path = tmp_path / "clients.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="unknown format"):
        divide(path)
