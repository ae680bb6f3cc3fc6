"""Methods by name. A new method is one module here and one line in ``REGISTRY``.

A builder is a function with keyword-only hyper-parameters that returns a ``Method``; the defaults
of its signature are the defaults of ``config.hparams.<method>``.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fedjax_skew.errors import unknown
from fedjax_skew.methods.base import Method
from fedjax_skew.methods.calfat import calfat
from fedjax_skew.methods.ccvr import ccvr
from fedjax_skew.methods.composition import compose
from fedjax_skew.methods.creff import creff
from fedjax_skew.methods.fedavg import fedavg
from fedjax_skew.methods.fedbe import fedbe
from fedjax_skew.methods.fedbn import fedbn
from fedjax_skew.methods.fedconcat import fedconcat
from fedjax_skew.methods.fedcurv import fedcurv
from fedjax_skew.methods.feddf import feddf
from fedjax_skew.methods.feddyn import feddyn
from fedjax_skew.methods.fedexp import fedexp
from fedjax_skew.methods.fedgc import fedgc
from fedjax_skew.methods.fedgen import fedgen
from fedjax_skew.methods.fedgf import fedgf
from fedjax_skew.methods.fedgr import fedgr
from fedjax_skew.methods.fedic import fedic
from fedjax_skew.methods.fedlc import fedlc
from fedjax_skew.methods.fedlc_lt import fedlc_lt
from fedjax_skew.methods.fedlf import fedlf
from fedjax_skew.methods.fedlmd import fedlmd, fedlmd_tf
from fedjax_skew.methods.fedmr import fedmr
from fedjax_skew.methods.fednova import fednova
from fedjax_skew.methods.fedntd import fedntd
from fedjax_skew.methods.fedopt import fedadagrad, fedadam, fedavgm, fedopt, fedyogi
from fedjax_skew.methods.fedprox import fedprox
from fedjax_skew.methods.fedrs import fedrs
from fedjax_skew.methods.fedsam import fedasam, fedsam
from fedjax_skew.methods.fedvls import fedvls
from fedjax_skew.methods.focal import focal
from fedjax_skew.methods.logit_adjust import logit_adjust
from fedjax_skew.methods.moon import moon
from fedjax_skew.methods.perfedavg import perfedavg
from fedjax_skew.methods.pfedme import pfedme
from fedjax_skew.methods.scaffold import scaffold

REGISTRY: dict[str, Callable[..., Method]] = {
    "calfat": calfat,
    "ccvr": ccvr,
    "creff": creff,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedasam": fedasam,
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedbe": fedbe,
    "fedbn": fedbn,
    "fedconcat": fedconcat,
    "fedcurv": fedcurv,
    "feddf": feddf,
    "feddyn": feddyn,
    "fedexp": fedexp,
    "fedgc": fedgc,
    "fedgen": fedgen,
    "fedgf": fedgf,
    "fedgr": fedgr,
    "fedic": fedic,
    "fedlc": fedlc,
    "fedlc_lt": fedlc_lt,
    "fedlf": fedlf,
    "fedlmd": fedlmd,
    "fedlmd_tf": fedlmd_tf,
    "fedmr": fedmr,
    "fednova": fednova,
    "fedntd": fedntd,
    "fedopt": fedopt,
    "fedprox": fedprox,
    "fedrs": fedrs,
    "fedsam": fedsam,
    "fedvls": fedvls,
    "fedyogi": fedyogi,
    "focal": focal,
    "logit_adjust": logit_adjust,
    "moon": moon,
    "perfedavg": perfedavg,
    "pfedme": pfedme,
    "scaffold": scaffold,
}


def names() -> dict[str, str]:
    """All methods with the first line of their module's description."""
    return {
        name: (inspect.getdoc(builder) or "").split("\n")[0] for name, builder in REGISTRY.items()
    }


def defaults(name: str) -> dict[str, Any]:
    """Default hyper-parameters of a method."""
    parameters = inspect.signature(REGISTRY[name]).parameters.values()
    return {p.name: p.default for p in parameters}


def build(name: str, hparams: Mapping[str, Mapping[str, Any]] | None = None) -> Method:
    """Builds a method or a composition such as ``fedlc+scaffold``.

    Args:
        name: registered names joined by ``+``.
        hparams: hyper-parameters by method name; missing ones take their defaults.
    """
    parts = []
    for part in name.split("+"):
        if part not in REGISTRY:
            raise unknown("method", part, REGISTRY)
        given = dict((hparams or {}).get(part, {}))
        for field in given:
            if field not in defaults(part):
                raise unknown(f"hparams.{part}", field, defaults(part))
        parts.append(REGISTRY[part](**given))
    return compose(parts)


__all__ = ["REGISTRY", "Method", "build", "compose", "defaults", "names"]
