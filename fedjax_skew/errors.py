"""Clear sentences for wrong input."""

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class MissingExtra(ImportError):
    """A package that one of the project's extras installs is not there."""


class NotPrepared(ValueError):
    """The files of a dataset are missing or damaged.

    Attributes:
        flags: the flags with which the ``prepare_data`` binary prepares them.
    """

    def __init__(self, message: str, flags: str = "") -> None:
        super().__init__(message)
        self.flags = flags


def import_extra(module: str, extra: str) -> ModuleType:
    """Imports a module of an optional requirement.

    Args:
        module: the module, e.g. ``"matplotlib.figure"``.
        extra: the extra of this project that installs it, e.g. ``"report"``.

    Raises:
        MissingExtra: one sentence that names the package and the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtra(
            f"{package} is not installed; pip install 'fedjax_skew[{extra}]' installs it.",
            name=package,
        ) from None


def unknown(kind: str, name: str, allowed: Iterable[str]) -> ValueError:
    """Builds the error for a name that is not registered, with the nearest valid one.

    Args:
        kind: what the name stands for, e.g. ``"method"``.
        name: the name that was given.
        allowed: all valid names.

    Returns:
        A ``ValueError`` to raise.
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ValueError(f"{kind}={name!r} is unknown; allowed: {', '.join(names)}.{hint}")
