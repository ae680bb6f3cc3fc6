"""Checkpoints, which consist of arrays written by orbax and a seal that proves their completeness.

``checkpoints/<round>/`` is an orbax directory with the arrays ``state``, which a round needs, and
``model``, the evaluated model if it differs from that of the state. The seal
``checkpoints/<round>.json`` contains the format version, plain values and the SHA-256 hash of every
file. It is written last: a directory without a seal is not a checkpoint.
"""

import collections
import hashlib
import json
import logging
import pathlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_skew.engine.mesh import process_max
from fedjax_skew.errors import import_extra
from fedjax_skew.runs.rundir import write_json

ocp = import_extra("orbax.checkpoint", "runs")

FORMAT = 2
_CHUNK_BYTES = 64 * 2**20

PyTree = Any
_log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """A restored checkpoint: its round, its state, and its plain values."""

    round: int
    state: PyTree
    values: dict[str, Any]


def save(
    directory: pathlib.Path,
    round_: int,
    state: PyTree,
    keep: int,
    *,
    model: PyTree = None,
    values: Mapping[str, Any] | None = None,
) -> None:
    """Writes a checkpoint and deletes all but the newest ``keep``.

    Args:
        directory: the run's ``checkpoints``.
        round_: number of rounds done.
        state: arrays from which a resumed run continues.
        keep: number of checkpoints to keep.
        model: arrays of the evaluated model, or None if it is that of the state.
        values: JSON values to store with the arrays.
    """
    tree = {"state": state, "model": jax.tree.leaves(model)}
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / str(round_)
    _seal(path).unlink(missing_ok=True)
    # Large arrays are compressed in chunks, one after another, which needs less memory.
    pieces = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES), tree)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path.absolute(), tree, save_args=pieces, force=True)
    if jax.process_index() == 0:
        seal = {"format": FORMAT, "values": values or {}, "model": _structure(model)}
        write_json(_seal(path), {**seal, "files": _digest(path)})
        tidy(directory, round_, keep)


def tidy(directory: pathlib.Path, last: int, keep: int) -> None:
    """Deletes old checkpoints, seals first, and incomplete files of killed processes.

    Args:
        directory: the run's ``checkpoints``.
        last: the round of the newest complete checkpoint. Later ones are damaged; they are kept
            until their round is saved again.
        keep: number of complete checkpoints to keep.
    """
    found = rounds(directory)
    later = [r for r in found if r > last]
    kept = {str(r) for r in (*later, *found[len(later) :][:keep])}
    for path in sorted(directory.iterdir(), key=lambda p: p.is_dir()):
        if path.name.removesuffix(".json") in kept:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def rounds(directory: pathlib.Path) -> list[int]:
    """Returns the rounds with a sealed checkpoint, newest first."""
    return sorted((int(p.stem) for p in directory.glob("*.json") if p.stem.isdigit()), reverse=True)


def restore(directory: pathlib.Path, like: Callable[[int], PyTree]) -> Checkpoint | None:
    """Returns the newest complete checkpoint, or None.

    Damaged checkpoints are skipped with a warning.

    Args:
        directory: the run's ``checkpoints``.
        like: ``round -> state`` of arrays with the shapes, dtypes and shardings of the result;
            numpy arrays are restored as numpy arrays. Under ``clients``, the second axis may have
            another length: padded rows are added or removed.
    """
    # The first process finds the checkpoint, because all of them must restore the same one.
    (found,) = process_max(newest(directory) + 1 if jax.process_index() == 0 else 0)
    if found == 0:
        return None
    round_, path = found - 1, directory / str(found - 1)
    target: Any = {"state": jax.tree.map(_described, like(round_))}
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            saved: Any = checkpointer.metadata(path.absolute())
            saved = getattr(saved, "item_metadata", saved).tree  # Absent in older versions.
            _check_shapes(saved["state"], target["state"])
            target["model"] = [np.empty(a.shape, a.dtype) for a in saved["model"]]
            tree = checkpointer.restore(path.absolute(), target, strict=False)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"checkpoint {str(path)!r} is incompatible with this configuration or version: "
            f"{str(error).splitlines()[0]} Delete the directory to start again."
        ) from error
    state = jax.tree.map(_fit, tree["state"], target["state"])
    return Checkpoint(round_, state, _read_seal(path)["values"])


def restore_model(directory: pathlib.Path, round_: int) -> tuple[PyTree, PyTree, PyTree]:
    """Returns ``params``, ``stats`` and the evaluated model, or None, as numpy arrays."""
    path = (directory / str(round_)).absolute()
    structure = _read_seal(path)["model"]
    with ocp.PyTreeCheckpointer() as checkpointer:
        saved: Any = checkpointer.metadata(path)
        saved = getattr(saved, "item_metadata", saved).tree
        state = {"params": saved["state"]["params"], "stats": saved["state"]["stats"]}
        part = {"state": state, "model": saved["model"]}
        plain = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), part)
        tree = checkpointer.restore(path, item=part, restore_args=plain, transforms={})
    state = tree["state"]
    return state["params"], state["stats"], _build(structure, tree["model"])


def newest(directory: pathlib.Path) -> int:
    """Returns the round of the newest complete checkpoint, or -1."""
    for round_ in rounds(directory):
        path = directory / str(round_)
        problem = _problem(path)
        if problem is None:
            return round_
        _log.warning("Checkpoint %s is damaged (%s); trying the previous one.", path, problem)
    return -1


def _check_shapes(saved: Any, target: Any) -> None:
    """Raises if shapes differ, except in the number of rows of clients."""

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
    """Makes numpy arrays writable and removes their padding; device arrays are not changed."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    return np.require(leaf[tuple(slice(n) for n in target.shape)], requirements="W")


def _seal(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".json")


def _read_seal(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(_seal(path).read_text())


def _structure(tree: PyTree) -> Any:
    """Returns the structure of a pytree as JSON, with ``"array"`` for every leaf."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {"dict": {str(key): _structure(tree[key]) for key in sorted(tree)}}
    if isinstance(tree, (list, tuple)):
        fields = getattr(tree, "_fields", None)
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [_structure(part) for part in tree], "fields": fields}
    return "array"


def _build(structure: Any, leaves: Iterable[Any]) -> PyTree:
    """Inserts leaves into a structure; a named tuple becomes another one with the same fields."""
    rest = iter(leaves)

    def build(node):
        if node is None:
            return None
        if node == "array":
            return next(rest)
        if "dict" in node:
            return {key: build(part) for key, part in node["dict"].items()}
        parts = [build(part) for part in node.get("tuple", node.get("list"))]
        if node["fields"]:
            return collections.namedtuple("Saved", node["fields"])(*parts)
        return tuple(parts) if "tuple" in node else parts

    return build(structure)


def _digest(path: pathlib.Path) -> dict[str, str]:
    files = sorted(p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def _problem(path: pathlib.Path) -> str | None:
    """Returns a description of the damage of a checkpoint, or None.

    Raises:
        ValueError: if it has another format, because skipping a complete checkpoint would lose
            work.
    """
    try:
        seal = _read_seal(path)
        expected = seal["files"]
    except (OSError, ValueError, KeyError):
        return "its digest cannot be read"
    if seal.get("format") != FORMAT:
        raise ValueError(
            f"checkpoint {str(path)!r} has the format {seal.get('format')}, but this version of "
            f"fedjax_skew reads the format {FORMAT}; resume with the version that wrote it, or "
            "use another workdir."
        )
    found = _digest(path) if path.is_dir() else {}
    wrong = sorted(name for name in expected if found.get(name) != expected[name])
    return f"{wrong[0]} is missing or changed" if wrong else None
