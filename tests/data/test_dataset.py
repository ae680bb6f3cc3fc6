"""The common form of a dataset: what is accepted, completed, refused and hashed."""

import dataclasses

import numpy as np
import pytest

from fedjax_skew.data.arrays import channel_statistics
from fedjax_skew.data.dataset import Dataset, check_arrays, validate
from fedjax_skew.data.holdout import with_validation


def make(**changes):
    x = np.zeros((4, 2, 2, 1), np.uint8)
    y = np.array([0, 1, 0, 1], np.int32)
    values = {"mean": (0.5,), "std": (1.0,), **changes}
    return dataclasses.replace(Dataset("d", x, y, x[:2], y[:2], 2), **values)


def build(y_train=(0, 1, 0, 1), y_test=(0, 1), x=None, **options):
    """A dataset of nested lists, with the labels given."""
    rows = np.random.default_rng(0).integers(0, 256, (len(y_train) + len(y_test), 3, 3))
    x = rows if x is None else x
    n = len(y_train)
    return Dataset.from_arrays(x[:n].tolist(), y_train, x[n:].tolist(), y_test, **options)


def test_a_correct_dataset_passes_unchanged():
    dataset = make(client_ids=np.zeros(4, np.int32))
    assert validate(dataset) is dataset
    assert check_arrays(dataset) is dataset


def test_missing_channel_statistics_are_computed():
    dataset = validate(make(mean=(), std=()))
    assert dataset.mean == (0.0,)
    assert dataset.std == (1.0,)


def test_lists_images_without_channels_and_int64_labels_are_accepted():
    dataset = build()
    assert dataset.x_train.dtype == np.uint8
    assert dataset.x_train.shape == (4, 3, 3, 1)
    assert dataset.y_train.dtype == np.int32
    assert dataset.num_classes == 2
    np.testing.assert_allclose(dataset.mean, [(dataset.x_train / 255).mean()])
    features = Dataset.from_arrays([[1, 2], [3, 4]], [0, 1], [[5, 6]], [1])
    assert features.x_train.dtype == np.float32
    assert features.mean == ()


@pytest.mark.parametrize(
    "ids", [[2**62, -7, 2**62, 3], np.array([2**64 - 1, 0, 2**64 - 1, 5], np.uint64), [9, 1, 9, 4]]
)
def test_client_ids_of_any_integer_size_are_renumbered(ids):
    dataset = build(client_ids=ids)
    assert dataset.client_ids.dtype == np.int32
    np.testing.assert_array_equal(dataset.client_ids, [2, 0, 2, 1])
    again = validate(make(client_ids=np.asarray(ids)))
    np.testing.assert_array_equal(again.client_ids, [2, 0, 2, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, "num_classes=0"),
        ({"num_classes": 1}, "label 1"),
        ({"x_train": np.zeros((4, 2), np.uint8)}, "x_train is uint8"),
        ({"x_train": np.zeros((4, 2, 2, 1), bool)}, "x_train has dtype bool"),
        ({"x_train": [[1], [2], [3, 3], [4]]}, "x_train cannot be made an array"),
        ({"x_train": np.zeros((4, 2, 0, 1), np.uint8)}, "at least one entry"),
        ({"x_test": np.zeros((2, 2, 2, 1), np.float32)}, "both"),
        ({"x_test": np.full((2, 4), np.inf, np.float32)}, "x_test holds NaN or infinite"),
        ({"x_test": np.zeros((2, 3, 2, 1), np.uint8)}, "must be equal"),
        ({"y_train": np.zeros(3, np.int32)}, "3 labels for 4 samples"),
        ({"y_train": np.zeros(4)}, "y_train is float64"),
        ({"y_test": np.array([0, -1], np.int32)}, "label -1"),
        ({"client_ids": np.zeros(3, np.int32)}, "client_ids"),
        ({"client_ids": np.zeros(4)}, "client_ids"),
        ({"class_names": ("a",)}, "1 names for 2 classes"),
        ({"x_validation": np.zeros((1, 3, 2, 1), np.uint8), "y_validation": np.zeros(1, np.int32)},
         "x_validation of shape"),
    ],
)  # fmt: skip
def test_wrong_arrays_are_named(changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        validate(make(**changes))
    assert "\n" not in str(caught.value)


def test_a_dataset_of_other_types_is_converted_and_completed():
    plain = make(mean=(), std=())
    flat = {name: getattr(plain, name)[..., 0] for name in ("x_train", "x_test")}
    labels = {name: getattr(plain, name).astype(np.int64) for name in ("y_train", "y_test")}
    given = Dataset("own", **flat, **labels, num_classes=2)
    found, expected = validate(given), validate(plain)
    assert found.mean == expected.mean != ()
    for name in ("x_train", "x_test", "y_train", "y_test"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert getattr(found, name).dtype == getattr(expected, name).dtype


def test_labels_with_large_gaps_are_refused():
    with pytest.raises(ValueError, match=r"100, 105, 110.*searchsorted"):
        build((100, 105, 110, 105), (100, 110))
    with pytest.raises(ValueError, match=r"use only 3 of the numbers 0\.\.9"):
        validate(make(y_train=np.array([0, 9, 0, 9], np.int32), num_classes=10))


def test_labels_that_count_from_one_are_noticed(caplog):
    with pytest.raises(ValueError, match=r"1\.\.3.*subtract 1"):
        build((1, 2, 3, 1), (1, 2))
    assert build((1, 2, 3, 1), (1, 2), num_classes=4).num_classes == 4
    assert "subtract 1" in caplog.text


def test_classes_that_only_the_test_set_has_are_logged(caplog):
    build((0, 1, 0, 1), (2, 3))
    assert (
        "2 classes of dataset 'arrays' have test samples but no training samples: 2, 3"
        in caplog.text
    )


def test_missing_classes_within_a_given_number_are_accepted_silently(caplog):
    assert build((0, 1, 3, 1), (0, 1), num_classes=10).num_classes == 10
    assert not caplog.text


def test_a_single_class_is_refused():
    with pytest.raises(ValueError, match="at least 2 classes"):
        build((0, 0, 0, 0), (0, 0))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_float_images_in_bytes_range_are_refused(scale):
    x = scale * np.linspace(0, 255, 6 * 9).reshape(6, 3, 3)
    with pytest.raises(ValueError, match="as uint8"):
        build(x=x)
    assert build(x=x / 255).x_train.dtype == np.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y_train": (0, 1, 0.5, 1)}, "one integer per sample"),
        ({"y_train": (0, 1, -1, 1)}, "label -1"),
        ({"y_train": (0, 1, 2**40, 1)}, "count from 0"),
        ({"x": np.full((6, 3, 3), 300)}, "0..255"),
        ({"x": np.full((6, 3, 3), "a")}, "allowed: uint8"),
        ({"x": np.zeros((6, 2, 2, 2, 2))}, "allowed shapes"),
        ({"x": np.zeros(6)}, "allowed shapes"),
        ({"num_classes": 2.5}, "num_classes=2.5"),
        ({"client_ids": ["a", "b", "a", "b"]}, "client_ids"),
    ],
)
def test_wrong_lists_are_one_sentence(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        build(**options)
    assert "\n" not in str(caught.value)


def test_ragged_lists_are_one_sentence():
    with pytest.raises(ValueError, match="x_train cannot be made an array"):
        Dataset.from_arrays([[1, 2], [3]], [0, 1], [[1, 2]], [0])


def test_channel_statistics_are_exact():
    x = np.random.default_rng(0).integers(0, 256, (5000, 3, 4, 2), dtype=np.uint8)
    mean, std = channel_statistics(x)
    np.testing.assert_allclose(mean, (x / 255).mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, (x / 255).std(axis=(0, 1, 2)), rtol=1e-12)


def test_constant_channels_can_still_be_divided_by():
    assert channel_statistics(np.full((3, 2, 2, 1), 7, np.uint8))[1] == (1.0,)


def test_the_hash_depends_on_content_only():
    assert make().hash == make(name="other").hash
    x = np.zeros((4, 2, 2, 1), np.uint8)
    x[3, 1, 1, 0] = 1
    labels = np.array([0, 1, 1, 0], np.int32)
    changes = (
        {"x_train": x},
        {"y_train": labels},
        {"x_test": x[2:]},
        {"num_classes": 3},
        {"mean": (0.4,)},
        {"client_ids": np.zeros(4, np.int32)},
        {"x_validation": x[:2], "y_validation": labels[:2]},
    )
    hashes = {make(**change).hash for change in changes}
    assert len(hashes | {make().hash}) == len(changes) + 1


def labelled(counts):
    y = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    return Dataset("d", x, y, x[:2], y[:2], len(counts), client_ids=y.copy())


def test_a_validation_set_is_stratified_and_disjoint_from_training():
    dataset = labelled((100, 50, 9))
    split = with_validation(dataset, 0.1, seed=3)
    np.testing.assert_array_equal(np.bincount(split.y_validation, minlength=3), [10, 5, 0])
    np.testing.assert_array_equal(np.bincount(split.y_train), [90, 45, 9])
    parts = np.concatenate([split.x_train, split.x_validation])[:, 0]
    np.testing.assert_array_equal(np.sort(parts), dataset.x_train[:, 0])
    assert (np.diff(split.x_train[:, 0]) > 0).all()
    np.testing.assert_array_equal(split.client_ids, split.y_train)
    assert split.x_test is dataset.x_test
    check_arrays(split)


def test_a_validation_set_depends_on_its_seed_only():
    dataset = labelled((100, 50))
    first, again, other = (with_validation(dataset, 0.2, seed=s) for s in (0, 0, 1))
    assert first.hash == again.hash != other.hash
    assert with_validation(dataset, 0) is dataset


@pytest.mark.parametrize("fraction", [-0.1, 1, float("nan"), 0.001])
def test_impossible_validation_fractions_are_refused(fraction):
    with pytest.raises(ValueError, match=r"dataset\.validation"):
        with_validation(labelled((100, 50)), fraction)
