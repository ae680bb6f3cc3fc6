"""The identity of a run: everything that determines its results.

A run with another identity can neither resume a run directory nor reuse its results. Fields of the
configuration are compared by value, and data, partitions and given objects are compared by hash.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import fedjax_skew
from fedjax_skew.config import default_config, flatten, may_change
from fedjax_skew.runs import checkpoint, rundir
from fedjax_skew.runs.source_hash import source_hash
from fedjax_skew.simulation.columns import plain
from fedjax_skew.simulation.description import describe
from fedjax_skew.simulation.problem import Problem
from fedjax_skew.simulation.state import fingerprint

# The values that are compared in addition to the fields, with their names in error messages.
_WORDS = {
    "version": "fedjax_skew",
    "data": "training and test data with the hash",
    "unlabelled": "unlabelled server data with the hash",
    "partition": "partitions with the hashes",
    "availability": "probabilities of clients with the hash",
    "method": "a method whose code and values have the hash",
    "module": "a module whose code and fields have the hash",
    "optimizer": "an optimizer whose code and values have the hash",
    "params": "initial parameters with the hash",
}


def identity(problem: Problem) -> dict[str, Any]:
    """Returns hashes of the data and of the given objects, which are empty if none were given.

    ``dataset`` describes the samples, which is needed to load the model later.
    """
    dataset, given = problem.dataset, problem.given
    arrays = {"unlabelled": problem.data.unlabelled_x, "availability": problem.data.log_weights}
    objects = {"method": given.method, "module": given.module, "optimizer": given.optimizer}
    return plain(
        {
            "version": fedjax_skew.__version__,
            "data": dataset.hash,
            "partition": [part.hash for part in problem.partitions],
            **{
                name: "" if value is None else source_hash(value)
                for name, value in {**arrays, **objects}.items()
            },
            "params": "" if given.params is None else fingerprint(given.params),
            "dataset": {
                "num_classes": dataset.num_classes,
                "sample_shape": dataset.x_train.shape[1:],
                "sample_dtype": str(dataset.x_train.dtype),
                "mean": dataset.mean,
                "std": dataset.std,
            },
        }
    )


def check(workdir: pathlib.Path, problem: Problem, found: Mapping[str, Any]) -> None:
    """Raises if the directory contains a run of another problem.

    Args:
        workdir: the run directory, which is not changed.
        problem: the problem to run.
        found: the problem's ``identity``.

    Raises:
        ValueError: if anything differs; the message names it with its old and new value.
    """
    if not (workdir / rundir.CONFIG).exists():
        return
    where = f"workdir={str(workdir)!r} was started with"
    old = rundir.read_json(workdir / rundir.IDENTITY)
    if not old:
        raise ValueError(
            f"{where} a version of fedjax_skew before 0.2, or its {rundir.IDENTITY} is damaged; "
            "use another workdir."
        )
    if old["version"] != found["version"]:
        raise ValueError(
            f"{where} fedjax_skew {old['version']}, not {found['version']}; use that version or "
            "another workdir."
        )
    config = describe(problem)
    fixed = any(phase.method.uses_total_rounds for phase in problem.phases)
    before = rundir.read_json(workdir / rundir.CONFIG)
    for field in differences(before, config) if before else []:
        if not may_change(field, config) or (field == "rounds" and fixed):
            raise ValueError(
                f"{where} {field}={_get(before, field)!r}, not {_get(config, field)!r}; use the "
                "old value or another workdir."
            )
    for key, words in _WORDS.items():
        if old.get(key, "") != found[key]:
            raise ValueError(
                f"{where} {words} {_short(old.get(key))}, not {_short(found[key])}; use the old "
                "one or another workdir."
            )
    done = rounds_done(workdir)
    if problem.config.rounds < done:
        raise ValueError(
            f"rounds={problem.config.rounds} is less than the {done} rounds that "
            f"workdir={str(workdir)!r} has done; use at least {done}, or another workdir."
        )


def write(workdir: pathlib.Path, problem: Problem, found: Mapping[str, Any]) -> None:
    """Writes the identity and then the configuration, whose presence implies that of both."""
    rundir.write_json(workdir / rundir.IDENTITY, found)
    rundir.write_json(workdir / rundir.CONFIG, describe(problem))


def rounds_done(workdir: pathlib.Path) -> int:
    """Returns the number of rounds that are stored in a directory."""
    summary = rundir.read_json(workdir / rundir.SUMMARY)
    saved = checkpoint.rounds(workdir / rundir.CHECKPOINTS)
    return max([*saved, int(summary.get("rounds", 0))], default=0)


def differences(old: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Returns the fields of a configuration whose values differ from those of an older file.

    A field that the file lacks had its default value when it was written. The hyper-parameters of
    methods that are not used are ignored.
    """
    before = flatten(plain(default_config().to_dict())) | flatten(plain(old))
    now = flatten(plain(config))
    used = config["method"].split("+")
    return [
        field
        for field in sorted(before.keys() | now.keys())
        if before.get(field) != now.get(field)
        and (not field.startswith("hparams.") or field.split(".")[1] in used)
    ]


def _get(config: Mapping[str, Any], field: str) -> Any:
    return flatten(config).get(field)


def _short(value: Any) -> str:
    """Returns a short text for a hash or a list of hashes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    return str(value)[:12] if value else "(as configured)"
