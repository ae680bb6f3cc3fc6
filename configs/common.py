"""What all configuration files share."""

import ml_collections

from fedjax_skew.config import smoke


def finish(config: ml_collections.ConfigDict, arg: str) -> ml_collections.ConfigDict:
    """Applies the part after ``file.py:``; ``smoke`` shrinks the run to seconds."""
    if arg == "smoke":
        return smoke(config)
    if arg:
        raise ValueError(f"config argument {arg!r} is unknown; allowed: smoke.")
    return config
