"""What FedLF claims."""

from experiments import printed
from experiments.contrasts import best, minus
from experiments.verdicts import Claim, Contrast, Term

_SERVER_TRAINING = ("creff", "fedic")


def _lf(factor: int, metric: str) -> str:
    return f"cifar10_lt longtail(if={factor})+dirichlet(alpha=0.5) {metric}"


_PLAIN = tuple(
    row
    for row in dict.fromkeys(row.row for row in printed.load("fedlf/table1"))
    if row not in (*_SERVER_TRAINING, "fedlf")
)
CLAIMS = (
    *(
        Claim(
            f"fedlf-if{factor}",
            f"FedLF has the best overall accuracy on CIFAR-10-LT with IF={factor} (Table 1).",
            best("fedlf/table1", _lf(factor, "accuracy"), "fedlf"),
        )
        for factor in (100, 50)
    ),
    Claim(
        "fedlf-tail",
        "FedLF's accuracy on tail classes is far (10 points or more) above FedAvg's (Table 1, "
        "CIFAR-10-LT, IF=100).",
        (
            Contrast(
                "FedLF - FedAvg - 10",
                (
                    Term(1, "fedlf/table1", "fedlf", _lf(100, "tail_acc")),
                    Term(-1, "fedlf/table1", "fedavg", _lf(100, "tail_acc")),
                ),
                -10.0,
            ),
        ),
    ),
    *(
        Claim(
            f"fedlf-{word}",
            f"{symbol} helps, alone and beside the other term (Table 3, CIFAR-10-LT, IF=50).",
            tuple(
                minus("fedlf/table3", "longtail(if=50)+dirichlet(alpha=0.5) accuracy", one, other)
                for one, other in pairs
            ),
        )
        for word, symbol, pairs in (
            (
                "centres",
                "The centre loss L_C",
                (("l_c=1 l_d=0", "l_c=0 l_d=0"), ("l_c=1 l_d=1", "l_c=0 l_d=1")),
            ),
            (
                "decorrelation",
                "The decorrelation L_D",
                (("l_c=0 l_d=1", "l_c=0 l_d=0"), ("l_c=1 l_d=1", "l_c=1 l_d=0")),
            ),
        )
    ),
    Claim(
        "fedlf-fedrs",
        "FedRS is the strongest baseline that does not train on the server (Table 1, CIFAR-10-LT, "
        "IF=100).",
        best("fedlf/table1", _lf(100, "accuracy"), "fedrs", _PLAIN),
    ),
    Claim(
        "fedlf-focal",
        "Focal loss is below FedAvg (Table 1, CIFAR-10-LT, IF=100).",
        (minus("fedlf/table1", _lf(100, "accuracy"), "fedavg", "focal"),),
    ),
)
