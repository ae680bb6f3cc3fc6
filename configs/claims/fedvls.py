"""What FedVLS claims."""

from experiments.contrasts import best, minus, within
from experiments.verdicts import Claim, Contrast, Term
from fedjax_skew.report import names

_BASELINES = ("fedavg", "fedlc", "fedrs", "fedsam", "fedntd", "fedlmd")
_NEITHER, _LOGIT, _DISTIL, _BOTH = (
    f"l_dis={dis} l_logit={logit}" for dis, logit in ((0, 0), (0, 1), (1, 0), (1, 1))
)
_COLUMNS = {
    "CIFAR-10": "cifar10 mobilenet_v2 dirichlet(beta=0.05)",
    "MNIST": "mnist dnn3 dirichlet(beta=0.05)",
}

CLAIMS = (
    *(
        Claim(
            f"fedvls-{data.replace('-', '').lower()}",
            f"FedVLS is above FedAvg, FedLC, FedRS, FedSAM, FedNTD and FedLMD on {data} at "
            "beta=0.05 (Table 1).",
            best("fedvls/table1", column, "fedvls", _BASELINES),
        )
        for data, column in _COLUMNS.items()
    ),
    *(
        Claim(
            f"fedvls-fedlc-below-fedavg-{data.replace('-', '').lower()}",
            f"FedLC falls below FedAvg on {data} at beta=0.05 (Table 1).",
            (minus("fedvls/table1", column, "fedavg", "fedlc"),),
        )
        for data, column in _COLUMNS.items()
    ),
    Claim(
        "fedvls-each-term-helps",
        "The distillation and the logit suppression each help (Table 5, CIFAR-10).",
        tuple(minus("fedvls/table5", "cifar10", one, _NEITHER) for one in (_DISTIL, _LOGIT)),
    ),
    Claim(
        "fedvls-both-terms-help-most",
        "Both terms together help more than either alone (Table 5, CIFAR-10).",
        tuple(minus("fedvls/table5", "cifar10", _BOTH, one) for one in (_DISTIL, _LOGIT)),
    ),
    Claim(
        "fedvls-insensitive",
        "The accuracy hardly depends on lambda: no two values from 0.05 to 1 differ by more than 2 "
        "points (Table 4, CIFAR-10).",
        tuple(
            within(
                "fedvls/table4", "cifar10", [f"lambda={v}" for v in (0.05, 0.1, 0.25, 0.5, 1)], 2.0
            )
        ),
    ),
    *(
        Claim(
            f"fedvls-with-{other}",
            f"FedVLS with {names.method(other)} is above both of its parts (Table 6, CIFAR-10).",
            tuple(
                minus("fedvls/table6", "cifar10", f"{other}+fedvls", part)
                for part in (other, "fedlc+fedvls")
            ),
        )
        for other in ("fedsam", "fedexp")
    ),
    Claim(
        "fedvls-vacant-classes-kept",
        "Vacant classes lose less accuracy in a local update of FedVLS than in one of FedAvg or "
        "FedLC (Figure 1).",
        tuple(
            Contrast(
                f"loss of {other} - loss of FedVLS",
                (
                    Term(1, "fedvls/figure1", "vacant before", panel),
                    Term(-1, "fedvls/figure1", "vacant after", panel),
                    Term(-1, "fedvls/figure1", "vacant before", "(d) skewed, FedVLS"),
                    Term(1, "fedvls/figure1", "vacant after", "(d) skewed, FedVLS"),
                ),
            )
            for other, panel in (("FedAvg", "(b) skewed, FedAvg"), ("FedLC", "(c) skewed, FedLC"))
        ),
        printed="a picture",
    ),
)
