"""Helpers that the configuration files share."""

import ml_collections

from fedjax_skew.config import smoke


def finish(config: ml_collections.ConfigDict, arg: str) -> ml_collections.ConfigDict:
    """Applies the argument after ``file.py:``; ``smoke`` shrinks the run to seconds."""
    if arg == "smoke":
        return fit_phases(smoke(config))
    if arg:
        raise ValueError(f"config argument {arg!r} is unknown; allowed: smoke.")
    return config


def fit_phases(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Shortens the first phase of FedConcat if a run has too few rounds for both phases."""
    phases = config.hparams.fedconcat
    phases.encoder_rounds = min(phases.encoder_rounds, max(config.rounds // 2, 1))
    return config
