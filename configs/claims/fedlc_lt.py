"""What FedLC-LT claims."""

from experiments.contrasts import best, chain, minus
from experiments.verdicts import Claim, Contrast, Term

_ABLATION = [
    f"l_local={a} l_global={a} delta_ciw={b} delta_cq={c}"
    for a, b, c in ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1))
]


def _column(factor: int) -> str:
    return f"cifar10 longtail(if={factor})+dirichlet(alpha=0.4)"


CLAIMS = (
    *(
        Claim(
            f"fedlc_lt-if{factor}",
            f"FedLC-LT is the best method of Table I on CIFAR-10 with IF={factor}.",
            best("fedlc_lt/table1", _column(factor), "fedlc_lt"),
        )
        for factor in (100, 50, 10)
    ),
    Claim(
        "fedlc_lt-ensembles-below-fedavg",
        "FedBE, FedDF and FedGen are below FedAvg (Table I, CIFAR-10, IF=100).",
        tuple(
            minus("fedlc_lt/table1", _column(100), "fedavg", method)
            for method in ("fedbe", "feddf", "fedgen")
        ),
    ),
    Claim(
        "fedlc_lt-ablation",
        "Each part adds to FedLC-LT in the order of Table III: both calibrations, then the class "
        "weights, the class query, and both.",
        chain("fedlc_lt/table3", "accuracy", _ABLATION),
    ),
    Claim(
        "fedlc_lt-classifier",
        "Training the classifier again on balanced data gains most of all blocks (Figure 2).",
        tuple(
            minus("fedlc_lt/figure2", "accuracy", "classifier", block)
            for block in ("FedAvg", "block 1", "block 2", "block 3")
        ),
        printed="classifier +9.11",
    ),
    Claim(
        "fedlc_lt-steps",
        "More distillation steps help: J=200 is above J=100, 50 and 25 (Figure 4c).",
        tuple(
            Contrast(
                f"J=200 - J={j}",
                (
                    Term(1, "fedlc_lt/figure4", "FedLC-LT", "distillation steps J x=200"),
                    Term(-1, "fedlc_lt/figure4", "FedLC-LT", f"distillation steps J x={j}"),
                ),
            )
            for j in (100, 50, 25)
        ),
        printed="increases steadily",
    ),
)
