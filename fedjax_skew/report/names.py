"""Labels for tables and figures; those of methods, datasets and models come from registries."""

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
    """Returns the label of a method, such as ``"FedLC + SCAFFOLD"``, or an unknown name as is."""
    return methods.label(name)


def dataset(name: str) -> str:
    """Returns the label of a dataset, such as ``"CIFAR-10"``, or an unknown name as is."""
    return datasets.title(name)


def model(name: str) -> str:
    """Returns the label of a model, such as ``"ResNet-8"``, or an unknown name as is."""
    return models.label("mlp" if name == "dnn3" else name)  # FedVLS calls the MLP "dnn3".


def value(value: Any) -> str:
    """Returns the text of a field's value; elements of a list are separated by commas."""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def megabytes(value: float) -> str:
    """Returns a number of megabytes with three or more digits, such as ``"4.56"``, ``"1,234"``."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


def metric(name: str) -> str:
    """Returns the label of a metric, such as ``"head"``, or an unknown name as is."""
    return _METRICS.get(name, name)


def assignment(name: str, value: str) -> str:
    """Returns a parameter with its value, such as ``"E=5"`` for ``("local_epochs", "5")``."""
    return f"{_PARAMETERS.get(name, name)}={value}"


def reported(kind: str) -> str:
    """Returns the meaning of ``last``, ``best`` and ``mean_last_50`` in words."""
    return _REPORTED.get(kind, kind)


def reported_briefly(kind: str) -> str:
    """Returns the same in two or three words, for the axis of a figure."""
    return _BRIEFLY.get(kind, kind)
