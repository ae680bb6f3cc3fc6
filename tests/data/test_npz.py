"""A user's own file: what is accepted, and one sentence for everything else."""

import numpy as np
import pytest

from fedjax_skew.data import datasets


def arrays(**changes):
    rng = np.random.default_rng(0)
    data = {
        "x_train": rng.integers(0, 256, (12, 4, 4, 3), dtype=np.uint8),
        "y_train": np.arange(12) % 3,
        "x_test": rng.integers(0, 256, (6, 4, 4, 3), dtype=np.uint8),
        "y_test": np.arange(6) % 3,
    }
    data.update(changes)
    return {key: value for key, value in data.items() if value is not None}


def save(tmp_path, **changes):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays(**changes))
    return path


def test_images_are_read(tmp_path):
    path = save(tmp_path, client_ids=np.array([30, 10] * 6))
    dataset = datasets.load("npz", path=path)
    assert dataset.num_classes == 3
    assert dataset.y_train.dtype == np.int32
    np.testing.assert_array_equal(dataset.x_train, arrays()["x_train"])
    np.testing.assert_array_equal(dataset.client_ids, [1, 0] * 6)
    expected = (arrays()["x_train"] / 255).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(dataset.mean, expected, atol=1e-12)
    expected = (arrays()["x_train"] / 255).std(axis=(0, 1, 2))
    np.testing.assert_allclose(dataset.std, expected, atol=1e-12)


def test_grey_images_get_a_channel_and_floats_become_float32(tmp_path):
    grey = {f"x_{p}": arrays()[f"x_{p}"][..., 0] for p in ("train", "test")}
    assert datasets.load("npz", path=save(tmp_path, **grey)).x_train.shape == (12, 4, 4, 1)
    flat = {f"x_{p}": arrays()[f"x_{p}"].reshape(-1, 48) / 7 for p in ("train", "test")}
    dataset = datasets.load("npz", path=save(tmp_path, **flat))
    assert dataset.x_train.dtype == np.float32
    assert dataset.mean == ()


def test_number_of_classes_may_be_larger_than_the_labels(tmp_path):
    assert datasets.load("npz", path=save(tmp_path), num_classes=10).num_classes == 10


def with_nan():
    x = np.ones((12, 5))
    x[3, 3] = np.nan
    return x


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, "lacks x_test, y_test"),
        ({"x_train": with_nan(), "x_test": np.ones((6, 5))}, "NaN"),
        ({"x_train": np.full((12, 5), 1e300), "x_test": np.ones((6, 5))}, "finite"),
        ({"x_train": np.array([{}] * 12)}, "Python objects"),
        ({"y_train": np.array([0, "a"] * 6, dtype=object)}, "Python objects"),
        ({"x_train": np.zeros(12)}, "shape"),
        ({"x_train": np.zeros((12, 5), np.uint8)}, "shape"),
        ({"x_train": np.zeros((12, 2, 2, 2, 2), np.uint8)}, "shape"),
        ({"x_train": np.full((12, 4, 4, 3), 256)}, "int64"),
        ({"x_train": np.zeros((12, 5, 5, 3), np.uint8)}, "must be equal"),
        ({"x_train": np.zeros((12, 4, 4, 3), np.float32)}, "both"),
        ({"y_train": np.arange(12) - 1}, "-1"),
        ({"y_train": np.arange(12) / 2}, "float64"),
        ({"y_train": np.zeros((12, 3), int)}, "one integer per sample"),
        ({"y_train": np.zeros(11, int)}, "11 labels for 12 samples"),
        ({"y_train": np.full(12, 10**6)}, "use only"),
        ({"y_train": np.full(12, 2**40)}, "count from 0"),
        ({"x_test": np.zeros((0, 4, 4, 3), np.uint8), "y_test": np.zeros(0, int)}, "x_test"),
        ({"y_train": np.arange(12) % 3 + 1, "y_test": np.full(6, 1)}, "subtract 1"),
        ({"client_ids": np.zeros(3, int)}, "client_ids"),
        ({"client_ids": np.zeros(12)}, "client_ids"),
    ],
)
def test_wrong_content_is_one_sentence(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        datasets.load("npz", path=save(tmp_path, **changes))
    assert "\n" not in str(caught.value)
    assert "data.npz" in str(caught.value)


def test_labels_outside_the_given_classes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"label 2; labels must be in 0\.\.1"):
        datasets.load("npz", path=save(tmp_path), num_classes=2)
    with pytest.raises(ValueError, match="num_classes=0"):
        datasets.load("npz", path=save(tmp_path), num_classes=0)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04broken", b"\x80\x04K\x01."])
def test_files_that_are_no_npz_are_refused(tmp_path, content):
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read"):
        datasets.load("npz", path=path)


def test_truncated_files_are_refused(tmp_path):
    path = save(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="cannot be read"):
        datasets.load("npz", path=path)


def test_a_single_array_is_refused(tmp_path):
    path = tmp_path / "one.npy"
    np.save(path, np.zeros(3))
    with pytest.raises(ValueError, match="single array"):
        datasets.load("npz", path=path)


@pytest.mark.parametrize("path", [None, "", "/nowhere/at/all.npz"])
def test_a_missing_path_is_refused(path):
    with pytest.raises(ValueError, match=r"dataset\.path"):
        datasets.load("npz", path=path)
