"""The prepare_data binary, with TFDS replaced by a fake where TensorFlow would be needed."""

import subprocess
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments import prepare_data
from fedjax_skew.data import tfds_source

ROOT = Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, "-m", "experiments.prepare_data", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_list_prints_every_name():
    result = run("--list")
    assert result.returncode == 0
    assert "emnist/balanced" in result.stdout
    assert "tiny_imagenet" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("--dataset=synthetic",), ("extra",)])
def test_wrong_calls_end_with_one_line_and_code_2(arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def make_zipped_tiny_imagenet(folder):
    picture = folder / "picture.png"
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(picture)
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as stream:
        top = "tiny-imagenet-200"
        stream.writestr(f"{top}/wnids.txt", "n01\n")
        stream.writestr(f"{top}/val/val_annotations.txt", "v.png\tn01\n")
        stream.write(picture, f"{top}/val/images/v.png")
        stream.write(picture, f"{top}/train/n01/images/t.png")


def test_an_archive_of_a_published_layout_is_unpacked_and_cached(tmp_path):
    make_zipped_tiny_imagenet(tmp_path)
    options = {"manual_dir": tmp_path, "cache_dir": tmp_path / "cache"}
    for _ in range(2):
        dataset = prepare_data.prepare("tiny_imagenet", **options)
        assert dataset.x_train.shape == (1, 64, 64, 3)
    assert (tmp_path / "tiny-imagenet-200/wnids.txt").is_file()
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_without_tensorflow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_data.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"fedjax_skew\[prepare\]"):
        prepare_data.prepare("cifar10", data_dir=tmp_path)


def test_near_names_are_suggested_before_tensorflow_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_data.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tfds_source, "_registered", lambda name: False)
    with pytest.raises(ValueError, match="Did you mean 'cifar10'"):
        prepare_data.prepare("cifar11", data_dir=tmp_path)


def test_a_missing_class_is_noticed(tmp_path, caplog):
    make_zipped_tiny_imagenet(tmp_path)
    prepare_data.prepare("tiny_imagenet", manual_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert "has 1 classes but the published dataset has 200" in caplog.text


class NotFound(ValueError):
    pass


def fake_tfds(calls, failure=None):
    def download_and_prepare(**options):
        calls.append(options)
        if failure:
            raise failure

    def builder(name, **options):
        if name == "nothing":
            raise NotFound(name)
        calls.append({"name": name, **options})
        return types.SimpleNamespace(download_and_prepare=download_and_prepare)

    return types.SimpleNamespace(
        builder=builder,
        download=types.SimpleNamespace(DownloadConfig=lambda **options: options),
        core=types.SimpleNamespace(
            DatasetNotFoundError=NotFound,
            FileFormat=types.SimpleNamespace(ARRAY_RECORD="array_record"),
        ),
    )


@pytest.fixture
def with_tensorflow(monkeypatch):
    monkeypatch.setattr(tfds_source, "_registered", lambda name: True)
    monkeypatch.setattr(prepare_data.importlib.util, "find_spec", lambda name: object())
    calls = []

    def install(failure=None):
        fake = fake_tfds(calls, failure)
        monkeypatch.setattr(tfds_source, "import_tfds", lambda: fake)
        return calls

    return install


def test_tfds_is_asked_for_array_record_and_given_the_archives(tmp_path, with_tensorflow):
    calls = with_tensorflow()
    prepare_data.prepare_tfds("cifar10", tmp_path, tmp_path)
    assert calls[0] == {"name": "cifar10", "data_dir": tmp_path, "file_format": "array_record"}
    assert calls[1]["download_config"] == {"manual_dir": tmp_path}
    assert calls[1]["file_format"] == "array_record"


def test_failures_of_tfds_are_one_sentence(tmp_path, with_tensorflow):
    with_tensorflow(ConnectionError("no\nnetwork"))
    with pytest.raises(ValueError, match=r"no network.*--manual_dir") as caught:
        prepare_data.prepare_tfds("cifar10", tmp_path, None)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="unknown"):
        prepare_data.prepare_tfds("nothing", tmp_path, None)
    with pytest.raises(ValueError, match="is not a directory"):
        prepare_data.prepare_tfds("cifar10", tmp_path, tmp_path / "absent")
