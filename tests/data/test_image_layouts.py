"""Readers of published layouts, on tiny fakes of them."""

import numpy as np
import pytest
from PIL import Image

from experiments import app
from fedjax_skew.data import datasets
from fedjax_skew.data.catalog import REGISTRY
from fedjax_skew.errors import NotPrepared


def picture(path, value, size=(64, 64), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value, value // 2, 0) if mode == "RGB" else value).save(path)


@pytest.fixture
def load(tmp_path):
    def call(name, **options):
        options.setdefault("data_dir", tmp_path)
        return datasets.load(name, cache_dir=tmp_path / "cache", **options)

    return call


def make_tiny_imagenet(root):
    (root / "val/images").mkdir(parents=True)
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "words.txt").write_text("n01\tgoldfish, fish\nn02\ttench\nn99\tother\n")
    for wnid, value in (("n01", 100), ("n02", 200)):
        for i in range(3):
            mode = "L" if (wnid, i) == ("n02", 2) else "RGB"
            picture(root / f"train/{wnid}/images/{wnid}_{i}.JPEG", value, mode=mode)
    picture(root / "val/images/val_0.JPEG", 200)
    picture(root / "val/images/val_1.JPEG", 100)
    (root / "val/val_annotations.txt").write_text(
        "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t0\t0\t1\t1\n"
    )


def test_tiny_imagenet_uses_the_validation_set_as_test_set(tmp_path, load):
    make_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    dataset = load("tiny_imagenet")
    assert dataset.x_train.shape == (6, 64, 64, 3)
    np.testing.assert_array_equal(dataset.y_train, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(dataset.y_test, [1, 0])
    assert dataset.class_names == ("goldfish, fish", "tench")
    np.testing.assert_allclose(dataset.x_train[0, 0, 0], [100, 50, 0], atol=3)
    np.testing.assert_allclose(dataset.x_train[5, 0, 0], 200, atol=3)


def test_tiny_imagenet_problems_are_named(tmp_path, load):
    root = tmp_path / "tiny-imagenet-200"
    with pytest.raises(NotPrepared, match="tiny_imagenet"):
        load("tiny_imagenet")
    make_tiny_imagenet(root)
    (root / "train/n01/images/n01_0.JPEG").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"n01_0\.JPEG cannot be decoded"):
        load("tiny_imagenet")
    picture(root / "train/n01/images/n01_0.JPEG", 1)
    (root / "val/images/val_0.JPEG").unlink()
    with pytest.raises(ValueError, match=r"val_0\.JPEG, which does not exist"):
        load("tiny_imagenet")
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\tn77\n")
    with pytest.raises(ValueError, match="Line 1"):
        load("tiny_imagenet")
    (root / "val/val_annotations.txt").unlink()
    with pytest.raises(ValueError, match=r"val_annotations\.txt"):
        load("tiny_imagenet")


def test_a_changed_file_is_decoded_again(tmp_path, load):
    make_tiny_imagenet(tmp_path)
    load("tiny_imagenet")
    picture(tmp_path / "train/n01/images/n01_0.JPEG", 10)
    assert abs(int(load("tiny_imagenet").x_train[0, 0, 0, 0]) - 10) < 4


def make_mini_csv(root, classes=3, each=12):
    for split, part in (("train", range(1)), ("val", range(1, 2)), ("test", range(2, classes))):
        lines = ["filename,label"]
        for c in part:
            for i in range(each):
                name = f"n0{c}{i:08d}.jpg"
                picture(root / "images" / name, 10 * i, size=(9, 7))
                lines.append(f"{name},n0{c}")
        (root / f"{split}.csv").write_text("\n".join(lines) + "\n")


def test_mini_imagenet_csv_splits_are_joined_and_cut_ten_one_one(tmp_path, load):
    make_mini_csv(tmp_path / "mini-imagenet")
    dataset = load("mini_imagenet")
    assert dataset.num_classes == 3
    assert dataset.x_train.shape == (30, 84, 84, 3)
    np.testing.assert_array_equal(np.bincount(dataset.y_train), [10, 10, 10])
    np.testing.assert_array_equal(dataset.y_test, [0, 1, 2])
    # The eleventh image of a class is for validation and left out, the twelfth is for testing.
    np.testing.assert_allclose(dataset.x_test[:, 0, 0, 0], 110, atol=4)
    assert dataset.x_train[..., 0].max() < 96
    assert load("mini_imagenet", image_size=20).x_train.shape == (30, 20, 20, 3)


def test_mini_imagenet_with_600_images_a_class_is_cut_500_50_50(tmp_path, load):
    make_mini_csv(tmp_path, each=600)
    dataset = load("mini_imagenet", image_size=2)
    np.testing.assert_array_equal(np.bincount(dataset.y_train), [500] * 3)
    np.testing.assert_array_equal(np.bincount(dataset.y_test), [50] * 3)


@pytest.mark.parametrize("split_folders", [False, True])
def test_mini_imagenet_class_folders(tmp_path, load, split_folders):
    for c, split in enumerate(("train", "val", "test")):
        home = tmp_path / split if split_folders else tmp_path / "mini_imagenet"
        for i in range(12):
            picture(home / f"n00{c}" / f"{i:02d}.jpg", 10 * i)
    dataset = load("mini_imagenet", image_size=8)
    np.testing.assert_array_equal(np.bincount(dataset.y_train), [10] * 3)
    np.testing.assert_array_equal(dataset.y_test, [0, 1, 2])
    assert dataset.class_names == ("n000", "n001", "n002")


def test_mini_imagenet_folders_with_shared_classes_keep_their_split(tmp_path, load):
    for split, count in (("train", 4), ("val", 2), ("test", 3)):
        for wnid in ("n01", "n02"):
            for i in range(count):
                picture(tmp_path / split / wnid / f"{i}.jpg", 50)
    dataset = load("mini_imagenet", image_size=8)
    np.testing.assert_array_equal(np.bincount(dataset.y_train), [4, 4])
    np.testing.assert_array_equal(np.bincount(dataset.y_test), [3, 3])


def test_mini_imagenet_csv_cannot_point_outside(tmp_path, load):
    make_mini_csv(tmp_path)
    (tmp_path / "train.csv").write_text("filename,label\n../../secret.jpg,n01\n")
    with pytest.raises(ValueError, match="Line 2"):
        load("mini_imagenet")


def make_subset(root, classes):
    for split in ("train", "val"):
        for c in range(classes):
            for i in range(2):
                picture(root / split / f"n{c:02d}" / f"{i}.JPEG", 10 * c, size=(300, 200))


def test_imagenet_subset_is_resized(tmp_path, load):
    make_subset(tmp_path / "imagenet_subset12", 12)
    dataset = load("imagenet_subset12")
    assert dataset.x_train.shape == (24, 64, 64, 3)
    assert dataset.num_classes == 12
    np.testing.assert_allclose(dataset.x_train[::2, 30, 30, 0], 10 * np.arange(12), atol=3)


def test_imagenet_subset_needs_twelve_classes_or_their_names(tmp_path, load):
    make_subset(tmp_path, 14)
    with pytest.raises(ValueError, match=r"needs 12 synset folders but has 14.*dataset\.synsets"):
        load("imagenet_subset12")
    chosen = [f"n{c:02d}" for c in range(2, 14)]
    assert load("imagenet_subset12", synsets=",".join(chosen)).class_names == tuple(chosen)
    with pytest.raises(ValueError, match="lacks the folder"):
        load("imagenet_subset12", synsets=[*chosen[:-1], "n77"])


@pytest.mark.parametrize("name", [i.name for i in REGISTRY.values() if i.source == "layout"])
def test_missing_layouts_say_what_where_and_how(tmp_path, load, name):
    with pytest.raises(NotPrepared) as caught:
        load(name)
    text, command = app.ending(caught.value)[0], "python -m experiments.prepare_data"
    assert str(tmp_path) in text and "\n" not in text
    assert f"{command} --dataset={name} --manual_dir={tmp_path}" in text
