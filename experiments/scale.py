"""Shrinks a configuration, and describes how it differs from the recipe."""

import ast
from collections.abc import Callable, Iterable
from typing import Any

import ml_collections

from configs.common import finish
from fedjax_skew.config import EXECUTION_FIELDS, flatten, lookup, used_hparams
from fedjax_skew.data import datasets

SCALES = ("full", "cpu", "short", "smoke")
_IMAGE_SIZE = 32  # Pixels per side that a CPU can train on.


def scaled(
    config: ml_collections.ConfigDict,
    scale: str,
    shrink: Callable[[ml_collections.ConfigDict, str], None],
    figure: bool = False,
) -> ml_collections.ConfigDict:
    """Returns a copy of a configuration at a scale.

    Args:
        config: the paper's recipe.
        scale: ``full``; ``cpu``, which fits two cores; ``short``, which takes minutes per run; or
            ``smoke``, which takes seconds per run.
        shrink: changes a configuration in place to ``cpu`` or ``short``.
        figure: whether the configuration belongs to a figure, whose contents ``smoke`` keeps.
    """
    config = config.copy_and_resolve_references()
    if scale == "smoke":
        return _smoke_figure(config) if figure else finish(config, "smoke")
    if scale in ("cpu", "short"):
        shrink(config, scale)
    return config


def _smoke_figure(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Shrinks a configuration in place, but keeps what a figure may vary.

    The methods, the partition and the clients are kept, so that the picture looks like the real
    one. It trains an MLP on MNIST (synthetic data is kept) for at most 8 rounds, with two local
    steps of at most 32 samples in place of an epoch.
    """
    if not config.dataset.name.startswith("synthetic"):
        config.dataset.name, config.dataset.image_size = "mnist", 0
        config.model, config.augment = "mlp", "none"
    if config.server_data.unlabelled_dataset:
        config.server_data.unlabelled_dataset = "labelled"
    config.num_seeds = config.eval_every = 1
    config.rounds = min(config.rounds, 8)
    config.batch_size = min(config.batch_size, 32)
    config.local_steps = config.local_steps or 2 * config.local_epochs
    config.local_epochs = 0
    config.group_thresholds = (0, 0)
    return config


def use_model(config: ml_collections.ConfigDict, model: str) -> None:
    """Sets a smaller network, and reduces images that are larger than 32 pixels."""
    config.model = model
    info = datasets.find(config.dataset.name)
    if info is not None and info.shape[:1] > (_IMAGE_SIZE,):
        config.dataset.image_size = _IMAGE_SIZE


def change(config: ml_collections.ConfigDict, text: str) -> None:
    """Applies ``field=value``; the value is parsed as a Python literal where possible.

    Raises:
        ValueError: if there is no such field or the value has the wrong type.
    """
    field, equals, value_text = text.partition("=")
    try:
        old = lookup(config, field)
    except (KeyError, TypeError, AttributeError):
        old = None
    if not equals or old is None or isinstance(old, ml_collections.ConfigDict):
        fields = ", ".join(sorted(k for k, v in config.items() if not hasattr(v, "keys")))
        raise ValueError(f"set={text!r} must be field=value with a field such as {fields}.")
    value: Any = value_text
    if not isinstance(old, str):
        try:
            value = ast.literal_eval(value_text)
        except (ValueError, SyntaxError):
            value = value_text
    try:
        config.update_from_flattened_dict({field: value})
    except TypeError:
        raise ValueError(
            f"set={text!r} has a value of the wrong type; {field} is now {old!r}."
        ) from None


def sentences(
    pairs: Iterable[tuple[ml_collections.ConfigDict, ml_collections.ConfigDict]],
) -> tuple[str, ...]:
    """Returns how runs differ from their recipes, one sentence per field.

    Args:
        pairs: the configurations ``(recipe, run)`` of every cell.
    """
    changes: dict[str, dict[tuple[str, str], set[str]]] = {}
    everywhere = set()
    for full, config in pairs:
        everywhere.add(config.dataset.name)
        for field, (old, new) in differences(full, config).items():
            kinds = changes.setdefault(field, {})
            kinds.setdefault((old, new), set()).add(config.dataset.name)
    found = []
    for field, kinds in changes.items():
        words = []
        for (old, new), names in kinds.items():
            where = "" if names == everywhere else f" ({', '.join(sorted(names))})"
            words.append(f"{new} instead of {old}{where}")
        found.append(f"{field}: {'; '.join(words)}.")
    return tuple(found)


def differences(
    full: ml_collections.ConfigDict, config: ml_collections.ConfigDict
) -> dict[str, tuple[str, str]]:
    """Returns the fields that differ from the recipe, with the old and the new value as text."""
    old, new = flatten(full), flatten(config)
    found = {
        field: (_say(old[field]), _say(value))
        for field, value in new.items()
        if not field.startswith("hparams.")
        and field not in EXECUTION_FIELDS
        and old[field] != value
    }
    before, after = used_hparams(full), used_hparams(config)
    for method, values in after.items():
        for name, value in values.items():
            if before.get(method, {}).get(name) != value:
                found[f"{method}'s {name}"] = (_say(before[method][name]), _say(value))
    if config.eval_every <= full.eval_every:
        found.pop("eval_every", None)  # More frequent evaluation makes nothing smaller.
    return {"seeds" if field == "num_seeds" else field: words for field, words in found.items()}


def _say(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
