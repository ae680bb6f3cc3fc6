"""TFDS directories read without TensorFlow; a tiny one is written here with the record writer."""

import io
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedjax_skew.data import datasets, tfds_source
from fedjax_skew.errors import NotPrepared

REAL = Path(
    os.environ.get("FEDJAX_SKEW_TEST_DATA")
    or Path(__file__).parents[2] / ".." / "shared" / "data" / "tfds"
)


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def write_dataset(root, name, images, labels, num_classes, version="1.0.0", file_format=None):
    """Writes what TFDS's preparation writes: two json files and one record file per split."""
    from array_record.python import array_record_module
    from tensorflow_datasets.proto import tf_example_pb2

    folder = root / name / version
    folder.mkdir(parents=True)
    base = name.split("/")[0]
    file_format = file_format or "array_record"
    splits = []
    for split, chosen in (("train", slice(0, -2)), ("test", slice(-2, None))):
        x, y = images[chosen], labels[chosen]
        path = folder / f"{base}-{split}.{file_format}-00000-of-00001"
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for pixels, label in zip(x, y, strict=True):
            example = tf_example_pb2.Example()
            example.features.feature["image"].bytes_list.value.append(png(pixels))
            example.features.feature["label"].int64_list.value.append(int(label))
            writer.write(example.SerializeToString())
        writer.close()
        splits.append(
            {
                "name": split,
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "numBytes": "1",
                "shardLengths": [str(len(x))],
            }
        )
    info = {
        "name": base,
        "version": version,
        "fileFormat": file_format,
        "splits": splits,
        "supervisedKeys": {"tuple": {"items": [{"featureKey": "image"}, {"featureKey": "label"}]}},
    }
    if "/" in name:
        info["configName"] = name.split("/")[1]
    (folder / "dataset_info.json").write_text(json.dumps(info))
    shape = images[0].shape if images[0].ndim == 3 else (*images[0].shape, 1)
    package = "tensorflow_datasets.core.features"
    features = {
        "pythonClassName": f"{package}.features_dict.FeaturesDict",
        "featuresDict": {
            "features": {
                "image": {
                    "pythonClassName": f"{package}.image_feature.Image",
                    "image": {
                        "dtype": "uint8",
                        "shape": {"dimensions": [str(d) for d in shape]},
                    },
                },
                "label": {
                    "pythonClassName": f"{package}.class_label_feature.ClassLabel",
                    "classLabel": {"numClasses": str(num_classes)},
                },
            }
        },
    }
    (folder / "features.json").write_text(json.dumps(features))
    return folder


@pytest.fixture
def grey():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (8, 5, 7), dtype=np.uint8), np.arange(8) % 3


def test_a_prepared_directory_is_read_and_cached(tmp_path, grey, monkeypatch):
    images, labels = grey
    write_dataset(tmp_path / "data", "digits", images, labels, 3)
    options = {"data_dir": tmp_path / "data", "cache_dir": tmp_path / "cache"}
    dataset = datasets.load("digits", **options)
    np.testing.assert_array_equal(dataset.x_train, images[:6, ..., None])
    np.testing.assert_array_equal(dataset.y_train, labels[:6])
    np.testing.assert_array_equal(dataset.x_test, images[6:, ..., None])
    assert dataset.num_classes == 3
    assert dataset.class_names == ("0", "1", "2")
    assert "tensorflow" not in sys.modules

    monkeypatch.setattr(tfds_source, "import_tfds", lambda: pytest.fail("the cache was not used"))
    again = datasets.load("digits", **options)
    np.testing.assert_array_equal(again.x_train, dataset.x_train)
    assert again.mean == dataset.mean
    assert again.class_names == dataset.class_names


def test_colour_images_and_resizing(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 6, 3), dtype=np.uint8)
    write_dataset(tmp_path, "photos", images, np.arange(5) % 2, 2)
    options = {"data_dir": tmp_path, "cache_dir": tmp_path / "cache"}
    np.testing.assert_array_equal(datasets.load("photos", **options).x_train, images[:3])
    assert datasets.load("photos", image_size=4, **options).x_train.shape == (3, 4, 4, 3)
    with pytest.raises(ValueError, match="image_size=0"):
        datasets.load("photos", image_size=0, **options)


def test_emnist_is_turned_upright(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 6), dtype=np.uint8)
    write_dataset(tmp_path, "emnist/balanced", images, np.arange(5), 47)
    dataset = datasets.load("emnist/balanced", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(dataset.x_train[..., 0], images[:3].transpose(0, 2, 1))
    with pytest.raises(ValueError, match="emnist/balanced"):
        datasets.load("emnist", data_dir=tmp_path, cache_dir=tmp_path / "cache")


def test_the_newest_version_is_taken_unless_one_is_named(tmp_path, grey):
    images, labels = grey
    for version, classes in (("1.9.0", 3), ("1.10.0", 4)):
        write_dataset(tmp_path, "digits", images, labels, classes, version)
    options = {"data_dir": tmp_path, "cache_dir": tmp_path / "cache"}
    assert datasets.load("digits", **options).num_classes == 4
    assert datasets.load("digits:1.9.0", **options).num_classes == 3


def test_missing_data_says_what_where_and_how(tmp_path):
    with pytest.raises(NotPrepared) as caught:
        datasets.load("cifar100", data_dir=tmp_path)
    text = str(caught.value)
    assert "cifar100" in text
    assert str(tmp_path) in text
    assert caught.value.flags == f"--dataset=cifar100 --data_dir={tmp_path}"


@pytest.mark.parametrize("name", ["minst", "../../etc", "", "CIFAR10", "cifar10/../..", None])
def test_unknown_names_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"dataset\.name"):
        datasets.load(name, data_dir=tmp_path)
    if name == "minst":
        with pytest.raises(ValueError, match="Did you mean 'mnist'"):
            datasets.load(name, data_dir=tmp_path)


def test_tfrecord_directories_say_how_to_get_array_record(tmp_path, grey):
    write_dataset(tmp_path, "digits", *grey, 3, file_format="tfrecord")
    with pytest.raises(ValueError, match="prepare it as array_record"):
        datasets.load("digits", data_dir=tmp_path, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("damage", ["truncate", "zero", "remove", "json", "features", "image"])
def test_damaged_directories_are_one_sentence(tmp_path, grey, damage):
    folder = write_dataset(tmp_path, "digits", *grey, 3)
    records = folder / "digits-train.array_record-00000-of-00001"
    if damage == "truncate":
        os.truncate(records, records.stat().st_size // 2)
    elif damage == "zero":
        os.truncate(records, 0)
    elif damage == "remove":
        records.unlink()
    elif damage == "json":
        (folder / "dataset_info.json").write_text("{")
    elif damage == "features":
        (folder / "features.json").unlink()
    else:
        # Records of another split have other content; here they hold no image at all.
        shutil.rmtree(folder)
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (8, 5, 7), dtype=np.uint8)
        write_dataset(tmp_path, "digits", [*images[:3], images[0][:2], *images[4:]], grey[1], 3)
    with pytest.raises(NotPrepared, match="is damaged") as caught:
        datasets.load("digits", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert "--dataset=digits" in caught.value.flags


def test_other_content_under_a_known_name_is_noticed(tmp_path, grey, caplog):
    write_dataset(tmp_path, "mnist", *grey, 10)
    datasets.load("mnist", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert "seems to hold something else" in caplog.text
    caplog.clear()
    datasets.load("mnist", data_dir=tmp_path, cache_dir=tmp_path / "cache", image_size=4)
    assert not caplog.text


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_real_records_equal_what_tfds_decodes(name):
    folders = sorted((REAL / name).glob("*/dataset_info.json"))
    if not folders:
        pytest.skip(f"real {name} is not prepared here")
    tfds = tfds_source.import_tfds()
    builder = tfds.builder_from_directory(folders[-1].parent)
    raw = builder.as_data_source(split="test[:300]", decoders={"image": tfds.decode.SkipDecoding()})
    x, y = tfds_source._read_split(
        name, raw, ("image", "label"), builder.info.features["image"].shape, None
    )
    decoded = builder.as_data_source(split="test[:300]")
    for index in (0, 7, 299):
        np.testing.assert_array_equal(x[index], decoded[index]["image"])
        assert y[index] == decoded[index]["label"]
