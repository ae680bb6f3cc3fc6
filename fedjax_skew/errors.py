"""Clear sentences for wrong input."""

import difflib
from collections.abc import Iterable


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
