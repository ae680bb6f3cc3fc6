"""The configuration of a run: defaults, and checks that speak before anything is compiled."""

import itertools
import math
from typing import Any

import ml_collections

from fedjax_skew import methods, models
from fedjax_skew.data import augment, partition
from fedjax_skew.errors import unknown
from fedjax_skew.methods.checks import LARGEST

SCHEDULES = ("constant", "exponential", "cosine", "step")


def default_config() -> ml_collections.ConfigDict:
    """FedAvg on Synthetic(1,1), locked so that a mistyped field is an error."""
    config = ml_collections.ConfigDict()
    config.method = "fedavg"
    config.hparams = {name: methods.defaults(name) for name in methods.REGISTRY}
    config.model = "logistic"

    config.dataset = ml_collections.ConfigDict()
    config.dataset.name = "synthetic(1,1)"
    config.dataset.data_dir = ""  # TFDS's directory, or the manual directory of other layouts
    config.dataset.path = ""  # of an .npz file
    config.dataset.num_classes = 0  # of an .npz file; 0 is one more than its largest label
    config.dataset.synsets = ""  # 12 folders of imagenet_subset12, by commas; "" takes all
    config.dataset.seed = 0  # of generated data
    config.dataset.image_size = 0  # of datasets stored as image files; 0 is the dataset's own
    config.dataset.placement = "device"  # or "host": a round's samples are moved for it

    config.partition = "natural"
    config.num_clients = 100
    config.participation = 1.0
    config.server_data = ml_collections.ConfigDict()
    config.server_data.labelled = 0.0  # class-balanced fraction of the training set
    config.server_data.unlabelled = 0.0  # fraction of the training set
    # Another dataset instead, or "labelled": the labelled samples. Their labels are not used.
    config.server_data.unlabelled_dataset = ""

    config.rounds = 100
    config.local_epochs = 1
    config.local_steps = 0  # instead of local_epochs
    config.batch_size = 64
    config.drop_last = False
    config.client_lr = 0.01
    config.lr_schedule = "constant"
    config.lr_decay = 0.99  # per round (exponential) or at each milestone (step)
    config.lr_milestones = (0.5, 0.75)  # fractions of the rounds (step)
    config.momentum = 0.0
    config.keep_momentum = False  # clients keep momentum between rounds
    config.weight_decay = 0.0
    config.clip_norm = 0.0  # 0 does not clip
    config.augment = "none"
    config.batch_norm = "average"  # or "local" statistics, or "group" normalisation instead

    config.seed = 0
    config.num_seeds = 1
    config.eval_every = 1
    config.eval_batch_size = 500
    config.eval_train_set = False  # also the accuracy on the training pool
    config.num_personal_eval_clients = (
        10  # clients whose own models are evaluated, where a method has them
    )
    config.num_local_eval_clients = 0  # clients evaluated before and after their local update
    config.group_thresholds = (0, 0)  # class sizes (upper, lower); (0, 0) means thirds
    config.on_nonfinite = "stop"  # or "skip" that client, or "continue"

    config.checkpoint_every = 0  # rounds; 0 is once a minute
    config.keep_checkpoints = 2
    config.tensorboard = True
    config.figures = True

    config.clients_per_chunk = 0  # 0 chooses by backend
    config.num_devices = 0  # 0 uses all
    config.state_placement = "device"  # or "host": where clients' kept state waits for them
    config.conv_impl = "auto"
    config.compute_dtype = "float32"
    config.remat = False
    config.lock()
    return config


def smoke(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Shrinks any configuration to seconds, keeping its method, model and partition."""
    config = config.copy_and_resolve_references()
    config.rounds = min(config.rounds, 2)
    config.num_seeds = 1
    config.eval_every = 1
    config.local_epochs = min(config.local_epochs, 1)
    config.local_steps = min(config.local_steps, 2)
    config.participation = min(config.participation, max(2 / max(config.num_clients, 1), 1e-9))
    for hparams in config.hparams.values():
        for field, value in hparams.items():
            # Phases and training loops of methods; a zero, which turns something off, stays.
            if field.endswith(("rounds", "steps", "epochs")):
                hparams[field] = min(value, 1 if field.endswith("rounds") else 2)
    return config


def _number(low: float, high: float = LARGEST, *, above: bool = False):
    """Rule: a finite number in ``[low, high]``, or ``(low, high]`` with ``above``."""
    words = f"a number {'above' if above else 'of at least'} {low:g}"
    words += f" and at most {high:g}"

    def fits(value):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return math.isfinite(value) and (value > low if above else value >= low) and value <= high

    return fits, words


def _whole(low: int, high: int = 2**31 - 1):
    """Rule: an integer in ``[low, high]``."""

    def fits(value):
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return fits, f"a whole number from {low} to {high}"


def _choice(*names: str):
    return (lambda value: value in names), "one of " + ", ".join(names)


def _text():
    return (lambda value: isinstance(value, str)), "a text"


def _flag():
    return (lambda value: isinstance(value, bool)), "True or False"


def _thresholds():
    def fits(value):
        return (
            isinstance(value, (tuple, list))
            and len(value) == 2
            and all(isinstance(v, (int, float)) and math.isfinite(v) for v in value)
            and value[0] >= value[1] >= 0
        )

    return fits, "two numbers (upper, lower) with upper >= lower >= 0"


def _fractions():
    def fits(value):
        numbers = isinstance(value, (tuple, list)) and all(
            isinstance(f, (int, float)) and 0 < f < 1 for f in value
        )
        return numbers and all(a < b for a, b in itertools.pairwise(value))

    return fits, "rising fractions between 0 and 1"


RULES = {
    "method": _text(),
    "model": _text(),
    "partition": _text(),
    "augment": _text(),
    "dataset.name": _text(),
    "dataset.data_dir": _text(),
    "dataset.path": _text(),
    "dataset.num_classes": _whole(0, 1_000_000),
    "dataset.synsets": _text(),
    "dataset.seed": _whole(0),
    "dataset.image_size": _whole(0, 1024),
    "dataset.placement": _choice("device", "host"),
    "num_clients": _whole(0),
    "participation": _number(0, 1, above=True),
    "server_data.labelled": _number(0, 0.9),
    "server_data.unlabelled": _number(0, 0.9),
    "server_data.unlabelled_dataset": _text(),
    "rounds": _whole(1),
    "local_epochs": _whole(0),
    "local_steps": _whole(0),
    "batch_size": _whole(1, 2**20),
    "drop_last": _flag(),
    "client_lr": _number(0, above=True),
    "lr_schedule": _choice(*SCHEDULES),
    "lr_decay": _number(0, 1, above=True),
    "lr_milestones": _fractions(),
    "momentum": _number(0, 0.9999),
    "keep_momentum": _flag(),
    "weight_decay": _number(0),
    "clip_norm": _number(0),
    "batch_norm": _choice("average", "local", "group"),
    "seed": _whole(0),
    "num_seeds": _whole(1, 1000),
    "eval_every": _whole(1),
    "eval_batch_size": _whole(1, 2**20),
    "eval_train_set": _flag(),
    "num_personal_eval_clients": _whole(0),
    "num_local_eval_clients": _whole(0),
    "group_thresholds": _thresholds(),
    "on_nonfinite": _choice("stop", "skip", "continue"),
    "checkpoint_every": _whole(0),
    "keep_checkpoints": _whole(1, 1000),
    "tensorboard": _flag(),
    "figures": _flag(),
    "clients_per_chunk": _whole(0, 2**20),
    "num_devices": _whole(0, 2**16),
    "state_placement": _choice("device", "host"),
    "conv_impl": _choice("auto", "patches", "xla"),
    "compute_dtype": _choice("float32", "bfloat16"),
    "remat": _flag(),
}


def lookup(config: Any, field: str) -> Any:
    """The value of a dotted field."""
    for name in field.split("."):
        config = config[name]
    return config


def check(
    config: ml_collections.ConfigDict, method: methods.Method | None = None
) -> methods.Method:
    """Checks a whole configuration and builds its method (unless one is given).

    Raises:
        ValueError: one sentence with the field, its value and what is allowed.
    """
    for field, (fits, allowed) in RULES.items():
        value = lookup(config, field)
        try:
            good = fits(value)
        except TypeError:
            good = False
        if not good:
            raise ValueError(f"{field}={value!r} is not allowed; it must be {allowed}.")
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
    if config.model not in models.names():
        raise unknown("model", config.model, models.names())
    if config.augment not in augment.names():
        raise unknown("augment", config.augment, augment.names())
    partition.check(config.partition)
    method = method or methods.build(config.method, used_hparams(config))
    labelled = config.server_data.labelled > 0
    unlabelled = config.server_data.unlabelled > 0 or config.server_data.unlabelled_dataset
    if method.needs_labelled_data and not labelled:
        raise ValueError(
            f"method={method.name!r} trains on labelled server data, but server_data.labelled="
            f"{config.server_data.labelled}; set it to a fraction such as 0.05."
        )
    if config.server_data.unlabelled_dataset == "labelled" and not labelled:
        raise ValueError(
            "server_data.unlabelled_dataset='labelled' takes the labelled samples, but "
            f"server_data.labelled={config.server_data.labelled}; set it to a fraction such as "
            "0.05."
        )
    if method.needs_unlabelled_data and not unlabelled:
        raise ValueError(
            f"method={method.name!r} distils on unlabelled server data, but "
            f"server_data.unlabelled={config.server_data.unlabelled}; set it to a fraction such as "
            "0.1, or server_data.unlabelled_dataset to a dataset's name."
        )
    if method.next_phase is not None and config.rounds <= method.next_phase.rounds:
        raise ValueError(
            f"rounds={config.rounds} leaves nothing for the second phase of {method.name}, which "
            f"starts after {method.next_phase.rounds} rounds; use more rounds or a shorter first "
            "phase."
        )
    return method


def used_hparams(config: ml_collections.ConfigDict) -> dict[str, dict[str, Any]]:
    """Hyper-parameters of the methods that ``config.method`` names."""
    hparams = config.hparams.to_dict()
    return {name: hparams.get(name, {}) for name in config.method.split("+")}
