"""Unpacking never writes outside its target."""

import io
import tarfile
import zipfile

import pytest

from fedjax_skew.data import archive


def make_zip(path, names):
    with zipfile.ZipFile(path, "w") as stream:
        for name in names:
            stream.writestr(name, "content")


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as stream:
        for member in members:
            if isinstance(member, str):
                member = tarfile.TarInfo(member)
                member.size = 7
            stream.addfile(member, io.BytesIO(b"content"))


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_plain_archives_are_unpacked(tmp_path, make):
    make(tmp_path / "a", ["x/y.txt", "z.txt"])
    archive.extract(tmp_path / "a", tmp_path / "out")
    assert (tmp_path / "out/x/y.txt").read_text() == "content"
    assert (tmp_path / "out/z.txt").read_text() == "content"
    with pytest.raises(ValueError, match="exists already"):
        archive.extract(tmp_path / "a", tmp_path / "out")


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "C:/evil", "..\\evil"])
def test_escaping_names_are_refused_before_anything_is_written(tmp_path, make, name):
    make(tmp_path / "a", ["fine.txt", name])
    with pytest.raises(ValueError, match="nothing was unpacked"):
        archive.extract(tmp_path / "a", tmp_path / "deep" / "out")
    assert not list((tmp_path / "deep").iterdir())


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    member = tarfile.TarInfo("link")
    member.type = kind
    member.linkname = "/etc/passwd"
    make_tar(tmp_path / "a", [member])
    with pytest.raises(ValueError, match="nothing was unpacked"):
        archive.extract(tmp_path / "a", tmp_path / "out")


def test_links_in_zip_files_are_refused(tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a", "w") as stream:
        stream.writestr(info, "/etc/passwd")
    with pytest.raises(ValueError, match="nothing was unpacked"):
        archive.extract(tmp_path / "a", tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"garbage" * 100])
def test_damaged_archives_are_one_sentence(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        archive.extract(tmp_path / "a", tmp_path / "out")
