"""Datasets in LEAF's JSON format."""

import json

import numpy as np
import pytest

from fedjax_skew.data import datasets, partition


@pytest.fixture
def load(tmp_path):
    def call(name, **options):
        if name == "femnist":
            options.setdefault("data_dir", tmp_path)
        return datasets.load(name, cache_dir=tmp_path / "cache", **options)

    return call


def leaf_file(path, users):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {u: {"x": np.asarray(x).tolist(), "y": y} for u, (x, y) in users.items()},
    }
    path.write_text(json.dumps(content))


def leaf_images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 784)) / 255


def make_femnist(root):
    x = leaf_images(6)
    leaf_file(root / "train/all_data_0.json", {"w9": (x[:2], [0, 61]), "w1": (x[2:3], [5])})
    leaf_file(root / "train/all_data_1.json", {"w5": (x[3:6], [1, 1, 2])})
    leaf_file(root / "test/all_data_0.json", {"w9": (x[:1], [0]), "w5": (x[:1], [3])})
    return x


@pytest.mark.parametrize("place", [".", "femnist", "femnist/data", "downloads/manual/femnist"])
def test_femnist_has_writers_as_clients(tmp_path, load, place):
    x = make_femnist(tmp_path / place)
    dataset = load("femnist")
    assert dataset.num_classes == 62
    np.testing.assert_array_equal(dataset.x_train, np.rint(x * 255).reshape(6, 28, 28, 1))
    np.testing.assert_array_equal(dataset.y_train, [0, 61, 5, 1, 1, 2])
    np.testing.assert_array_equal(dataset.client_ids, [2, 2, 0, 1, 1, 1])
    np.testing.assert_array_equal(dataset.y_test, [0, 3])
    result = partition.partition(
        "natural",
        dataset.y_train,
        num_clients=3,
        num_classes=62,
        seed=0,
        client_ids=dataset.client_ids,
    )
    np.testing.assert_array_equal(np.diff(result.offsets), [1, 3, 2])


@pytest.mark.parametrize(
    "users",
    [
        {"w": (leaf_images(2), [0])},
        {"w": (leaf_images(1), [62])},
        {"w": (leaf_images(1), [0.5])},
        {"w": (leaf_images(1) + 1, [0])},
        {"w": (np.full((1, 784), np.nan), [0])},
        {"w": (leaf_images(1)[:, :-1], [0])},
        {"w": ([], [])},
    ],
)
def test_malformed_femnist_is_one_sentence(tmp_path, load, users):
    make_femnist(tmp_path)
    for file in (tmp_path / "train").iterdir():
        file.unlink()
    leaf_file(tmp_path / "train/a.json", users)
    with pytest.raises(ValueError, match=r"a\.json|train") as caught:
        load("femnist")
    assert "\n" not in str(caught.value)


def test_broken_json_is_named(tmp_path, load):
    make_femnist(tmp_path)
    (tmp_path / "train/b.json").write_text('{"users": [')
    with pytest.raises(ValueError, match=r"b\.json cannot be read"):
        load("femnist")


def make_users(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return {u: (rng.normal(size=(n, 3)), [i % 2 for i in range(n)]) for u, n in sizes.items()}


def test_train_and_test_files_are_read_as_they_are(tmp_path, load):
    leaf_file(tmp_path / "d/train/a.json", make_users({"u2": 3, "u1": 2}))
    leaf_file(tmp_path / "d/test/a.json", make_users({"u1": 4}))
    dataset = load("leaf", path=tmp_path / "d")
    assert dataset.x_train.shape == (5, 3)
    assert dataset.x_train.dtype == np.float32
    np.testing.assert_array_equal(dataset.client_ids, [1, 1, 1, 0, 0])
    assert len(dataset.y_test) == 4
    assert dataset.num_classes == 2


@pytest.mark.parametrize("single", [False, True])
def test_all_data_is_split_within_every_user(tmp_path, load, single):
    users = make_users({"a": 20, "b": 5, "c": 1})
    leaf_file(tmp_path / "all_data/all_data.json", users)
    path = tmp_path / "all_data" / ("all_data.json" if single else "")
    dataset = load("leaf", path=path, num_classes=5)
    np.testing.assert_array_equal(np.bincount(dataset.client_ids), [18, 4, 1])
    np.testing.assert_allclose(dataset.x_test[:2], users["a"][0][18:], rtol=1e-6)
    np.testing.assert_allclose(dataset.x_test[2:], users["b"][0][4:], rtol=1e-6)
    assert dataset.num_classes == 5


def test_num_samples_may_be_absent_and_images_become_bytes(tmp_path, load):
    images = np.arange(4 * 2 * 2).reshape(4, 2, 2)
    data = {"u": {"x": images.tolist(), "y": [0, 1, 0.0, 1]}}
    (tmp_path / "x.json").write_text(json.dumps({"users": ["u"], "user_data": data}))
    dataset = load("leaf", path=tmp_path / "x.json")
    assert dataset.x_train.shape == (3, 2, 2, 1)
    assert dataset.x_train.dtype == np.uint8


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"x": ["hello", "world"], "y": [0, 1]}, "text and file names are not supported"),
        ({"x": [[1.0], [2.0]], "y": ["a", "b"]}, "one integer per sample"),
        ({"x": [[1.0], [2.0]], "y": [0.5, 1]}, "integers that count from 0"),
        ({"x": [[1.0], [2.0, 3.0]], "y": [0, 1]}, "malformed"),
        ({"x": [[1.0]], "y": [0, 1]}, "1 samples, 2 labels"),
        ({"y": [0, 1]}, "'x'"),
        ({"x": [[1.0], [2.0], [3.0]], "y": [0, 0, 0]}, "at least 2 classes"),
        ({"x": [], "y": []}, "no samples"),
    ],
)
def test_malformed_entries_are_one_sentence(tmp_path, load, entry, message):
    content = {"users": ["u"], "user_data": {"u": entry}}
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        load("leaf", path=tmp_path / "x.json")
    assert "\n" not in str(caught.value)


def test_a_path_without_files_is_one_sentence(tmp_path, load):
    for path in (None, "", tmp_path / "absent", tmp_path):
        with pytest.raises(ValueError, match=r"dataset\.path"):
            load("leaf", path=path)
