"""The configuration of a run: one declaration per field, and validation before compilation.

To add a field, add one entry to ``FIELDS``. It determines the default, the rule, the output of
``--list=fields``, the value in smoke runs, whether the field may change on resume, and whether it
is part of the identity of a run and of reports. Rules that involve several fields belong in
:func:`check`. Hyper-parameters are not declared here: ``config.hparams.<method>`` is derived from
the signature of the method's builder.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import ml_collections

from fedjax_skew import checks, methods, models
from fedjax_skew.checks import FLAG, Rule, above, at_least, choice, number, several, text, whole
from fedjax_skew.data import augment, availability, partition
from fedjax_skew.engine.target import PRECISIONS
from fedjax_skew.errors import unknown


@dataclasses.dataclass(frozen=True)
class Field:
    """One configuration field.

    Attributes:
        default: the default value, which also determines the type.
        rule: the rule for allowed values.
        help: a one-line description of the field.
        resumable: whether the value may change when a run is resumed. All other fields are fixed
            by the first command that uses a run directory.
        execution: whether the field only affects where and how fast a run is computed. It may then
            change on resume, and is part of neither the identity of a run nor reports.
        per_host: whether the value is a path, which may differ between hosts and change on resume.
    """

    default: Any
    rule: Rule
    help: str
    resumable: bool = False
    execution: bool = False
    per_host: bool = False


def _rises(values: Any) -> bool:
    return all(0 < v < 1 for v in values) and all(a < b for a, b in itertools.pairwise(values))


def _is_pair(values: Any) -> bool:
    return len(values) == 2 and all(map(math.isfinite, values)) and values[0] >= values[1] >= 0


_FRACTIONS = Rule(tuple, "rising fractions between 0 and 1", _rises)
_THRESHOLDS = Rule(tuple, "two numbers (upper, lower) with upper >= lower >= 0", _is_pair)

FIELDS: Mapping[str, Field] = {
    "method": Field("fedavg", text(), "name of a method, or names joined by +"),
    "model": Field("logistic", text(), "name of a network"),
    # Data.
    "dataset.name": Field("synthetic(1,1)", text(), "name of a dataset"),
    "dataset.data_dir": Field(
        "", text(), "directory of the dataset's files", execution=True, per_host=True
    ),
    "dataset.path": Field(
        "", text(), "file or directory of your own data (npz, leaf)", per_host=True
    ),
    "dataset.num_classes": Field(
        0, whole(0, 1_000_000), "classes of your own data; 0 means one more than its largest label"
    ),
    "dataset.synsets": Field(
        "", text(), "12 folders of imagenet_subset12, separated by commas; '' takes all"
    ),
    "dataset.seed": Field(0, whole(0), "seed of generated data"),
    "dataset.image_size": Field(
        0, whole(0, 1024), "side of images read from files; 0 means the dataset's default"
    ),
    "dataset.validation": Field(
        0.0, number(0, 0.9), "fraction of the training set held out to select hyper-parameters"
    ),
    "dataset.placement": Field(
        "device",
        choice("device", "host"),
        "where the training set is stored; host moves the samples of each round",
        execution=True,
    ),
    "partition": Field("natural", text(), "how training samples are assigned to clients"),
    "num_clients": Field(100, whole(0), "number of clients"),
    "participation": Field(1.0, number(0, 1, above=True), "fraction of clients in each round"),
    "availability": Field(
        "uniform",
        text(),
        "availability of clients: uniform, weighted(path=FILE) or schedule(path=FILE)",
    ),
    "dropout": Field(0.0, number(0, 1), "probability that a client drops out of a round"),
    "stragglers": Field(
        0.0, number(0, 1), "probability that a client takes only a random part of its local steps"
    ),
    "client_holdout": Field(
        0.0, number(0, 0.9), "fraction of every client's samples held out for its evaluation"
    ),
    "server_data.labelled": Field(
        0.0, number(0, 0.9), "class-balanced fraction of the training set given to the server"
    ),
    "server_data.unlabelled": Field(
        0.0, number(0, 0.9), "fraction of the training set given to the server without labels"
    ),
    "server_data.unlabelled_dataset": Field(
        "", text(), "dataset used as unlabelled server data, or 'labelled' for the labelled samples"
    ),
    # Training.
    "rounds": Field(100, whole(1, smoke=2), "communication rounds", resumable=True),
    "local_epochs": Field(1, whole(0, smoke=1), "local epochs per round"),
    "local_steps": Field(0, whole(0, smoke=2), "local steps per round, instead of epochs"),
    "batch_size": Field(64, whole(1, 2**20), "samples per local step"),
    "drop_last": Field(False, FLAG, "drop the incomplete last batch of an epoch"),
    "client_lr": Field(0.01, above(0), "learning rate of local SGD"),
    "lr_schedule": Field(
        "constant", choice("constant", "exponential", "cosine", "step"), "schedule over rounds"
    ),
    "lr_decay": Field(
        0.99, number(0, 1, above=True), "factor per round (exponential) or milestone (step)"
    ),
    "lr_milestones": Field((0.5, 0.75), _FRACTIONS, "fractions of the rounds (step)"),
    "momentum": Field(0.0, number(0, 0.9999), "momentum of local SGD"),
    "keep_momentum": Field(False, FLAG, "clients keep their momentum between rounds"),
    "weight_decay": Field(0.0, at_least(0), "coefficient of local weight decay"),
    "clip_norm": Field(0.0, at_least(0), "largest norm of a local gradient; 0 disables clipping"),
    "augment": Field("none", text(), "augmentation of training images"),
    "batch_norm": Field(
        "average",
        choice("average", "local", "group"),
        "average running statistics, keep them local, or use group normalisation instead",
    ),
    "seed": Field(0, whole(0), "first seed"),
    "num_seeds": Field(1, whole(1, 1000, smoke=1), "consecutive seeds trained in one program"),
    # Evaluation.
    "eval_every": Field(1, whole(1, smoke=1), "rounds between evaluations", resumable=True),
    "eval_batch_size": Field(500, whole(1, 2**20), "samples per evaluation step", resumable=True),
    "eval_train_set": Field(
        False, FLAG, "also evaluate on the clients' training samples", resumable=True
    ),
    "num_personal_eval_clients": Field(
        10, whole(0), "clients whose personal models are evaluated", resumable=True
    ),
    "num_local_eval_clients": Field(
        0, whole(0), "clients evaluated before and after their local update", resumable=True
    ),
    "group_thresholds": Field(
        (0, 0),
        _THRESHOLDS,
        "class sizes above which a class is head and below which it is tail; (0, 0) means thirds",
        resumable=True,
    ),
    "on_nonfinite": Field(
        "stop",
        choice("stop", "skip", "continue"),
        "what to do with a client whose update is not finite",
        resumable=True,
    ),
    # Execution.
    "checkpoint_every": Field(
        0,
        whole(0),
        "rounds between checkpoints; 0 saves once per minute, and more often if rounds are slow",
        execution=True,
    ),
    "keep_checkpoints": Field(2, whole(1, 1000), "checkpoints to keep", execution=True),
    "save_partition": Field(
        False,
        FLAG,
        "write the samples of every client, for partition=file(path=...)",
        execution=True,
    ),
    "clients_csv": Field(
        "end",
        choice("end", "evaluation", "never"),
        "when to write clients.csv: after the last round, at every evaluation, or never",
        execution=True,
    ),
    "loggers": Field(
        "tensorboard",
        several("tensorboard", "csv", "wandb", "mlflow"),
        "additional loggers of metrics, separated by commas",
        execution=True,
    ),
    "figures": Field(True, FLAG, "draw the partition", execution=True),
    "clients_per_chunk": Field(
        0, whole(0, 2**20), "clients trained at a time; 0 chooses by backend", execution=True
    ),
    "num_devices": Field(0, whole(0, 2**16), "devices to use; 0 uses all", execution=True),
    "state_placement": Field(
        "device",
        choice("device", "host"),
        "where the state that clients keep between rounds is stored",
        execution=True,
    ),
    "conv_impl": Field(
        "auto",
        choice("auto", "native", "patches", "xla", "grouped"),
        "implementation of convolutions; auto is native on a CPU and grouped on an accelerator",
    ),
    "compute_dtype": Field("float32", choice("float32", "bfloat16"), "dtype of the computation"),
    "matmul_precision": Field(
        "default",
        choice(*PRECISIONS),
        "precision of float32 products; default is the fastest one of the device (TF32 on NVIDIA "
        "GPUs, bfloat16 on TPUs, float32 on CPUs), highest is float32 on all devices",
    ),
    "deterministic": Field(
        False,
        FLAG,
        "make results on GPUs bit-identical, at some cost; on CPUs and TPUs they always are",
        execution=True,
    ),
    "remat": Field(False, FLAG, "recompute activations in the backward pass to save memory"),
}

EXECUTION_FIELDS = frozenset(name for name, field in FIELDS.items() if field.execution)
HOST_FIELDS = frozenset(name for name, field in FIELDS.items() if field.per_host)


def names() -> dict[str, str]:
    """Returns every field with its description, its default and its allowed values."""
    return {
        name: f"{field.help} (default {field.default!r}; {field.rule.allowed})"
        for name, field in FIELDS.items()
    }


def default_config() -> ml_collections.ConfigDict:
    """Returns the default configuration, FedAvg on Synthetic(1,1).

    The configuration is locked, so that a misspelt field raises an error.
    """
    config = ml_collections.ConfigDict()
    for name, field in FIELDS.items():
        *groups, leaf = name.split(".")
        node = config
        for group in groups:
            if group not in node:
                node[group] = ml_collections.ConfigDict()
            node = node[group]
        node[leaf] = field.default
    config.hparams = {name: methods.defaults(name) for name in methods.REGISTRY}
    config.lock()
    return config


def smoke(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Reduces a configuration to a run of seconds, keeping its method, model and partition."""
    config = config.copy_and_resolve_references()
    rules = {name: field.rule for name, field in FIELDS.items()}
    for method in methods.REGISTRY:
        hparams = checks.rules(methods.builder(method))
        rules |= {f"hparams.{method}.{name}": rule for name, rule in hparams.items()}
    limits = {name: rule.smoke for name, rule in rules.items() if rule.smoke is not None}
    config.update_from_flattened_dict(
        {name: min(lookup(config, name), limit) for name, limit in limits.items()}
    )
    config.participation = min(config.participation, 2 / max(config.num_clients, 2))
    return config


def may_change(name: str, config: Mapping[str, Any]) -> bool:
    """Returns whether a field may change when a run with this configuration is resumed."""
    field = FIELDS.get(name)
    if name == "rounds" and config["lr_schedule"] in ("cosine", "step"):
        return False  # The learning rate of every round depends on it.
    return field is not None and (field.resumable or field.execution or field.per_host)


def lookup(config: Any, name: str) -> Any:
    """Returns the value of a dotted field."""
    for part in name.split("."):
        config = config[part]
    return config


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of all fields by dotted name."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, (Mapping, ml_collections.ConfigDict)):
            fields |= {f"{name}.{inner}": v for inner, v in flatten(value).items()}
        else:
            fields[name] = value
    return fields


def used_hparams(config: ml_collections.ConfigDict) -> dict[str, dict[str, Any]]:
    """Returns the hyper-parameters of the methods in ``config.method``."""
    hparams = config.hparams.to_dict()
    return {name: hparams.get(name, {}) for name in config.method.split("+")}


def check(
    config: ml_collections.ConfigDict, method: methods.Method | None = None
) -> methods.Method:
    """Validates a whole configuration and returns the given method, or builds the configured one.

    Raises:
        ValueError: if a value is not allowed; the message names the field, its value and the
            allowed values.
    """
    for name, field in FIELDS.items():
        field.rule.check(name, lookup(config, name))
    if config.model not in models.names():
        raise unknown("model", config.model, models.names())
    if config.augment not in augment.names():
        raise unknown("augment", config.augment, augment.names())
    partition.check(config.partition)
    availability.check(config.availability)
    if bool(config.local_epochs) == bool(config.local_steps):
        raise ValueError(
            f"local_epochs={config.local_epochs} and local_steps={config.local_steps}: exactly one "
            "of the two must be above 0."
        )
    if config.eval_train_set and config.dataset.placement == "host":
        raise ValueError(
            "eval_train_set=True puts the training set on the device; it must be False with "
            "dataset.placement='host'."
        )
    method = method or methods.build(config.method, used_hparams(config))
    _check_server_data(config.server_data, method)
    if method.next_phase is not None and config.rounds <= method.next_phase.rounds:
        raise ValueError(
            f"rounds={config.rounds} leaves nothing for the second phase of {method.name}, which "
            f"starts after {method.next_phase.rounds} rounds; use more rounds or a shorter first "
            "phase."
        )
    return method


def _check_server_data(data: ml_collections.ConfigDict, method: methods.Method) -> None:
    """Raises if the server lacks data that the method needs."""
    if method.needs_labelled_data and not data.labelled:
        raise ValueError(
            f"method={method.name!r} trains on labelled server data, but server_data.labelled="
            f"{data.labelled}; set it to a fraction such as 0.05."
        )
    if data.unlabelled_dataset == "labelled" and not data.labelled:
        raise ValueError(
            "server_data.unlabelled_dataset='labelled' uses the labelled samples, but "
            f"server_data.labelled={data.labelled}; set it to a fraction such as 0.05."
        )
    if method.needs_unlabelled_data and not (data.unlabelled or data.unlabelled_dataset):
        raise ValueError(
            f"method={method.name!r} distils on unlabelled server data, but "
            f"server_data.unlabelled={data.unlabelled}; set it to a fraction such as 0.1, or "
            "server_data.unlabelled_dataset to a dataset's name."
        )
