"""Unpacking of archives without writing outside of the target directory."""

import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def extract(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Unpacks a zip or tar archive into a new directory.

    The complete directory is created by a single rename. Only regular files and directories are
    allowed: an archive with an absolute name, a name with ``..``, a link or a device is rejected
    before anything is unpacked.

    Args:
        path: the archive.
        target: the directory to create; it must not exist.

    Raises:
        ValueError: if the archive is damaged or contains a member that is not allowed.
    """
    path, target = Path(path), Path(target)
    if target.exists():
        raise ValueError(f"{target} exists already; {path} is unpacked only into a new directory.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    # The upper half of the external attributes is the Unix mode; 0xA is a link.
                    _check(path, info.filename, plain=info.external_attr >> 28 != 0xA)
                for info in archive.infolist():
                    archive.extract(info, temporary)
        else:
            with tarfile.open(path) as tar:
                members = tar.getmembers()
                for member in members:
                    _check(path, member.name, plain=member.isfile() or member.isdir())
                for member in members:
                    _write_member(tar, member, temporary)
        temporary.chmod(0o755)
        temporary.rename(target)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise ValueError(f"The archive {path} cannot be unpacked ({error}).") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _check(path: Path, name: str, plain: bool) -> None:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    drive = bool(parts) and ":" in parts[0]
    if not plain or drive or name.startswith(("/", "\\")) or ".." in parts:
        raise ValueError(
            f"The archive {path} contains {name!r}, which is a link or points outside of the "
            "target directory; nothing was unpacked."
        )


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Writes one checked member, ignoring the owner, mode and time in the archive."""
    place = folder / member.name
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    if content is not None:
        with content, open(place, "wb") as stream:
            shutil.copyfileobj(content, stream)
