"""Exceptions, and functions that raise them with helpful messages."""

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class MissingExtra(ImportError):
    """A package that one of the project's extras installs is missing."""


class NotPrepared(ValueError):
    """The files of a dataset are missing or damaged.

    Attributes:
        flags: the flags with which the ``prepare_data`` program prepares them.
    """

    def __init__(self, message: str, flags: str = "") -> None:
        super().__init__(message)
        self.flags = flags


def import_extra(module: str, extra: str) -> ModuleType:
    """Imports a module of an optional dependency.

    Args:
        module: the module, such as ``"matplotlib.figure"``.
        extra: the extra of this project that installs it, such as ``"report"``.

    Raises:
        MissingExtra: if the package is not installed; the message names the package and the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtra(
            f"{package} is not installed; install it with pip install 'fedjax_skew[{extra}]'.",
            name=package,
        ) from None


def unknown(kind: str, name: str, allowed: Iterable[str]) -> ValueError:
    """Returns the error for an unknown name, which suggests the most similar valid name.

    Args:
        kind: what the name refers to, such as ``"method"``.
        name: the unknown name.
        allowed: all valid names.

    Returns:
        A ``ValueError`` to raise.
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ValueError(f"{kind}={name!r} is unknown; allowed: {', '.join(names)}.{hint}")
