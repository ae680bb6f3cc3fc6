"""What the papers claim, as contrasts between numbers of their tables and figures."""

import importlib

from experiments import printed
from experiments.verdicts import Claim

CLAIMS: tuple[Claim, ...] = tuple(
    claim
    for key in printed.papers()
    for claim in importlib.import_module(f"configs.claims.{key}").CLAIMS
)
