"""Checkpoints: orbax writes them, a digest proves them whole.

``checkpoints/<round>/`` is an orbax directory, ``checkpoints/<round>.json`` its format version and
the SHA-256 of every file. The digest is written last: a directory without one is no checkpoint.
"""

import hashlib
import json
import logging
import pathlib
import shutil
from typing import Any

import jax
import numpy as np

from fedjax_skew.engine.mesh import process_max
from fedjax_skew.errors import import_extra
from fedjax_skew.runs.rundir import write_json

ocp = import_extra("orbax.checkpoint", "runs")

FORMAT = 1
_CHUNK_BYTES = 64 * 2**20

_log = logging.getLogger(__name__)


def save(directory: pathlib.Path, round_: int, tree: Any, keep: int) -> None:
    """Writes a checkpoint and deletes all but the newest ``keep``."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / str(round_)
    _seal(path).unlink(missing_ok=True)
    # Pieces of large arrays are compressed one after another, which needs less memory.
    pieces = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES), tree)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path.absolute(), tree, save_args=pieces, force=True)
    if jax.process_index() == 0:
        write_json(_seal(path), {"format": FORMAT, "files": _digest(path)})
        _tidy(directory, {str(r) for r in rounds(directory)[:keep]})


def _tidy(directory: pathlib.Path, kept: set[str]) -> None:
    """Deletes old checkpoints, seals first, and what killed processes left half written."""
    for path in sorted(directory.iterdir(), key=lambda p: p.is_dir()):
        if path.name.removesuffix(".json") in kept:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def rounds(directory: pathlib.Path) -> list[int]:
    """Rounds with a sealed checkpoint, newest first."""
    return sorted((int(p.stem) for p in directory.glob("*.json") if p.stem.isdigit()), reverse=True)


def restore(directory: pathlib.Path, like: Any) -> tuple[int, Any] | None:
    """The newest whole checkpoint, or None.

    Damaged checkpoints are reported and passed over.

    Args:
        directory: the run's ``checkpoints``.
        like: ``round -> tree`` of arrays with the shapes, types and shardings to restore to; numpy
            becomes numpy. Below ``clients`` the second axis may have another length: rows that are
            padding are added or left out.
    """
    # Of several processes the first one looks; all must restore the same.
    (found,) = process_max(_newest_whole(directory) + 1 if jax.process_index() == 0 else 0)
    if found == 0:
        return None
    round_, path = found - 1, directory / str(found - 1)
    target = jax.tree.map(_described, like(round_))
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            saved: Any = checkpointer.metadata(path.absolute())
            saved = getattr(saved, "item_metadata", saved)  # Older versions give it directly.
            _check_shapes(saved.tree, target)
            tree = checkpointer.restore(path.absolute(), target, strict=False)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"checkpoint {str(path)!r} does not fit this configuration or version: "
            f"{str(error).splitlines()[0]} Delete the directory to start again."
        ) from error
    return round_, jax.tree.map(_fit, tree, target)


def _newest_whole(directory: pathlib.Path) -> int:
    for round_ in rounds(directory):
        path = directory / str(round_)
        problem = _problem(path)
        if problem is None:
            return round_
        _log.warning("Checkpoint %s is damaged (%s); trying the one before it.", path, problem)
    return -1


def _check_shapes(saved: Any, target: Any) -> None:
    """Raises if an array differs in more than the number of kept rows."""

    def shapes(tree):
        found = {}
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree):
            name = jax.tree_util.keystr(keys, simple=True, separator=".")
            shape = tuple(leaf.shape)
            found[name] = (shape[0], *shape[2:]) if name.startswith("clients.") else shape
        return found

    old, new = shapes(saved), shapes(target)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            raise ValueError(f"{name} has shape {old.get(name)}, not {new.get(name)}.")


def _described(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _fit(leaf: Any, target: Any) -> Any:
    """Arrays of the host are writable and without padding; those of devices are so already."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    return np.require(leaf[tuple(slice(n) for n in target.shape)], requirements="W")


def _seal(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".json")


def _digest(path: pathlib.Path) -> dict[str, str]:
    files = sorted(p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def _problem(path: pathlib.Path) -> str | None:
    """What is wrong with a checkpoint, or None.

    Raises:
        ValueError: if it is of another format; it is whole, so passing it over would lose work.
    """
    try:
        seal = json.loads(_seal(path).read_text())
        expected = seal["files"]
    except (OSError, ValueError, KeyError):
        return "its digest cannot be read"
    if seal.get("format") != FORMAT:
        raise ValueError(
            f"checkpoint {str(path)!r} has the format {seal.get('format')}, but this version of "
            f"fedjax_skew reads the format {FORMAT}; go on with the version that wrote it, or use "
            "another workdir."
        )
    found = _digest(path) if path.is_dir() else {}
    wrong = sorted(name for name in expected if found.get(name) != expected[name])
    return f"{wrong[0]} is missing or changed" if wrong else None
