"""The registry of methods. A new method needs one module here and one line in ``REGISTRY``.

A builder is a function with keyword-only hyper-parameters that returns a ``Method``. Its signature
declares the defaults of ``config.hparams.<method>`` and, through ``checks.validated``, the values
that they may take.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedjax_skew import checks
from fedjax_skew.errors import unknown
from fedjax_skew.methods.base import Method
from fedjax_skew.methods.composition import compose


class Entry(NamedTuple):
    """An entry of the registry.

    Attributes:
        label: the name of the method in tables and figures.
        module: the module that defines the builder, if its name differs from the method's.
    """

    label: str
    module: str = ""


REGISTRY: dict[str, Entry] = {
    "balancefl": Entry("BalanceFL"),
    "calfat": Entry("CalFAT"),
    "ccvr": Entry("CCVR"),
    "creff": Entry("CReFF"),
    "ditto": Entry("Ditto"),
    "fedacg": Entry("FedACG"),
    "fedadagrad": Entry("FedAdagrad", "fedopt"),
    "fedadam": Entry("FedAdam", "fedopt"),
    "fedasam": Entry("FedASAM", "fedsam"),
    "fedavg": Entry("FedAvg"),
    "fedavgm": Entry("FedAvgM", "fedopt"),
    "fedbabu": Entry("FedBABU"),
    "fedbe": Entry("FedBE"),
    "fedbn": Entry("FedBN"),
    "fedcm": Entry("FedCM"),
    "fedconcat": Entry("FedConcat"),
    "fedcurv": Entry("FedCurv"),
    "feddecorr": Entry("FedDecorr"),
    "feddf": Entry("FedDF"),
    "feddyn": Entry("FedDyn"),
    "fedetf": Entry("FedETF"),
    "fedexp": Entry("FedExP"),
    "fedgc": Entry("FedGC"),
    "fedgela": Entry("FedGELA"),
    "fedgen": Entry("FedGen"),
    "fedgf": Entry("FedGF"),
    "fedgr": Entry("FedGR"),
    "fedgrab": Entry("Fed-GraB"),
    "fedic": Entry("FEDIC"),
    "fedlc": Entry("FedLC"),
    "fedlc_lt": Entry("FedLC-LT"),
    "fedlesam": Entry("FedLESAM"),
    "fedlf": Entry("FedLF"),
    "fedlmd": Entry("FedLMD"),
    "fedlmd_tf": Entry("FedLMD-Tf", "fedlmd"),
    "fedloge": Entry("FedLoGe"),
    "fedmr": Entry("FedMR"),
    "fednh": Entry("FedNH"),
    "fednova": Entry("FedNova"),
    "fedntd": Entry("FedNTD"),
    "fedopt": Entry("FedOpt"),
    "fedper": Entry("FedPer"),
    "fedproto": Entry("FedProto"),
    "fedprox": Entry("FedProx"),
    "fedrcl": Entry("FedRCL"),
    "fedrep": Entry("FedRep"),
    "fedrod": Entry("FedRoD"),
    "fedrs": Entry("FedRS"),
    "fedsam": Entry("FedSAM"),
    "fedsol": Entry("FedSOL"),
    "fedspeed": Entry("FedSpeed"),
    "feduv": Entry("FedUV"),
    "fedvls": Entry("FedVLS"),
    "fedyogi": Entry("FedYogi", "fedopt"),
    "focal": Entry("Focal loss"),
    "logit_adjust": Entry("Logit adjustment"),
    "moon": Entry("MOON"),
    "perfedavg": Entry("Per-FedAvg"),
    "pfedme": Entry("pFedMe"),
    "scaffold": Entry("SCAFFOLD"),
}


def builder(name: str) -> Callable[..., Method]:
    """Returns the function that builds a registered method."""
    if name not in REGISTRY:
        raise unknown("method", name, REGISTRY)
    module = importlib.import_module(f"{__name__}.{REGISTRY[name].module or name}")
    return getattr(module, name)


def names() -> dict[str, str]:
    """Returns the names of all methods with the first line of their descriptions."""
    return {name: (inspect.getdoc(builder(name)) or "").split("\n")[0] for name in REGISTRY}


def label(name: str) -> str:
    """Returns the label of a method or composition, such as ``"FedLC + SCAFFOLD"``.

    Unregistered names are returned unchanged.
    """
    parts = name.split("+")
    return " + ".join(REGISTRY[part].label if part in REGISTRY else part for part in parts)


def defaults(name: str) -> dict[str, Any]:
    """Returns the default hyper-parameters of a method."""
    return checks.defaults(builder(name))


def build(name: str, hparams: Mapping[str, Mapping[str, Any]] | None = None) -> Method:
    """Builds a method or a composition such as ``fedlc+scaffold``.

    Args:
        name: registered names joined by ``+``.
        hparams: hyper-parameters by method name; defaults are used for those not given.
    """
    hparams = hparams or {}
    return compose([builder(part)(**hparams.get(part, {})) for part in name.split("+")])


__all__ = [
    "REGISTRY",
    "Entry",
    "Method",
    "build",
    "builder",
    "compose",
    "defaults",
    "label",
    "names",
]
