"""The cache: written once, whole or not at all, never in the way."""

import os

import numpy as np
import pytest

from fedjax_skew.data import cache
from fedjax_skew.data.dataset import Dataset


def make(value=1):
    x = np.full((4, 2, 2, 1), value, np.uint8)
    return Dataset("d", x, np.zeros(4, np.int32), x, np.zeros(4, np.int32), 2,
                          np.arange(4, dtype=np.int32), (0.5,), (1.0,), ("a", "b"))  # fmt: skip


def test_second_fetch_reads_what_the_first_wrote(tmp_path):
    first = cache.fetch("a/b", "k", make, tmp_path)
    second = cache.fetch("a/b", "k", lambda: pytest.fail("built twice"), tmp_path)
    assert second.name == first.name
    assert second.mean == first.mean
    assert second.class_names == ("a", "b")
    for field in ("x_train", "y_train", "x_test", "y_test", "client_ids"):
        np.testing.assert_array_equal(getattr(second, field), getattr(first, field))
    assert not second.x_train.flags.writeable
    assert [p.name for p in tmp_path.iterdir()] == ["a_b-k"]


def test_two_writers_at_once_leave_one_whole_entry(tmp_path):
    def build_while_another_finishes():
        cache.fetch("d", "k", lambda: make(3), tmp_path)
        return make(3)

    assert cache.fetch("d", "k", build_while_another_finishes, tmp_path).num_classes == 2
    assert [p.name for p in tmp_path.iterdir()] == ["d-k"]
    again = cache.fetch("d", "k", lambda: pytest.fail("built again"), tmp_path)
    assert again.x_train[0, 0, 0, 0] == 3


def test_another_key_is_another_entry(tmp_path):
    cache.fetch("d", "1", lambda: make(1), tmp_path)
    assert cache.fetch("d", "2", lambda: make(2), tmp_path).x_train[0, 0, 0, 0] == 2


@pytest.mark.parametrize("file", ["x_train.npy", "meta.json", "y_test.npy", "client_ids.npy"])
def test_a_damaged_entry_is_made_again(tmp_path, file, caplog):
    cache.fetch("d", "k", make, tmp_path)
    path = tmp_path / "d-k" / file
    path.write_bytes(path.read_bytes()[:-5])
    again = cache.fetch("d", "k", lambda: make(7), tmp_path)
    assert again.x_train[0, 0, 0, 0] == 7
    assert "damaged" in caplog.text
    assert cache.fetch("d", "k", make, tmp_path).x_train[0, 0, 0, 0] == 7


def test_a_failed_build_leaves_nothing(tmp_path):
    def fail():
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        cache.fetch("d", "k", fail, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unwritable_cache_warns_once(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    for _ in range(3):
        assert cache.fetch("d", "k", make, blocked / "cache").num_classes == 2
    assert caplog.text.count("cannot be written") == 1


def test_a_full_disk_leaves_no_half_entry(tmp_path, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.np, "save", full)
    cache.fetch("d", "k", make, tmp_path)
    assert not list(tmp_path.iterdir())
    assert "No space left" in caplog.text


def test_directory_is_argument_then_environment_then_home(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDJAX_SKEW_CACHE", "/env")
    assert str(cache.directory(tmp_path)) == str(tmp_path)
    assert str(cache.directory()) == "/env"
    monkeypatch.delenv("FEDJAX_SKEW_CACHE")
    assert str(cache.directory()) == os.path.expanduser("~/.cache/fedjax_skew")
