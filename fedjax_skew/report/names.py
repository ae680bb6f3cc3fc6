"""How names are written in tables and figures; methods, datasets and models bring their own."""

from typing import Any

from fedjax_skew import methods, models
from fedjax_skew.data import datasets

_METRICS = {
    "accuracy": "accuracy",
    "head_acc": "head",
    "macro_f1": "macro-F1",
    "middle_acc": "middle",
    "rounds_to_target": "rounds",
    "speedup": "speed-up",
    "tail_acc": "tail",
}
_PARAMETERS = {"if": "IF", "local_epochs": "E", "num_clients": "clients"}
_REPORTED = {
    "last": "accuracy after the last round",
    "best": "best test accuracy over all rounds (the round is chosen on the test set)",
    "at_best_validation": "test accuracy of the round with the best validation accuracy",
    "mean_last_50": "mean over the last 50 rounds",
    "rounds_to_target": "rounds to reach the target accuracy",
    "unstated": "not stated by the paper",
}
_BRIEFLY = {"last": "last round", "best": "best round", "mean_last_50": "mean of last 50 rounds"}


def method(name: str) -> str:
    """``"fedlc+scaffold"`` becomes ``"FedLC + SCAFFOLD"``; unknown names stay as they are."""
    return methods.label(name)


def dataset(name: str) -> str:
    """``"cifar10"`` becomes ``"CIFAR-10"``; unknown names stay as they are."""
    return datasets.title(name)


def model(name: str) -> str:
    """``"resnet8"`` becomes ``"ResNet-8"``; unknown names stay as they are."""
    return models.label("mlp" if name == "dnn3" else name)  # FedVLS's name for it


def value(value: Any) -> str:
    """The value of a configuration field; elements of a list are separated by commas."""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def megabytes(value: float) -> str:
    """Three digits or all before the point: ``"0.0123"``, ``"4.56"``, ``"1,234"``."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


def metric(name: str) -> str:
    """``"head_acc"`` becomes ``"head"``; unknown names stay as they are."""
    return _METRICS.get(name, name)


def assignment(name: str, value: str) -> str:
    """``("local_epochs", "5")`` becomes ``"E=5"``; unknown names stay as they are."""
    return f"{_PARAMETERS.get(name, name)}={value}"


def reported(kind: str) -> str:
    """What ``last``, ``best`` and ``mean_last_50`` mean, in words."""
    return _REPORTED.get(kind, kind)


def reported_briefly(kind: str) -> str:
    """The same in two or three words, for the axis of a figure."""
    return _BRIEFLY.get(kind, kind)
