"""What FedGR claims."""

from experiments import printed
from experiments.contrasts import best, minus
from experiments.verdicts import Claim, Contrast, Term

_GR_ROWS = tuple(dict.fromkeys(row.row for row in printed.load("fedgr/table3")))
_SOFTMAX, _GRAVITY, _WHOLE = (
    f"unbalanced_softmax={a} gravitation_regularizer={b}" for a, b in ((1, 0), (0, 1), (1, 1))
)


def _part_minus_fedavg(part: str) -> Contrast:
    return Contrast(
        f"{part} - FedAvg",
        (
            Term(1, "fedgr/table5", part, "fashion_mnist"),
            Term(-1, "fedgr/table3", "fedavg", "double(labels=3) accuracy"),
        ),
    )


CLAIMS = (
    *(
        Claim(
            f"fedgr-labels{labels}",
            "FedGR has the best accuracy and macro-F1 on Fashion-MNIST with "
            f"{labels} labels per client (Table 3).",
            tuple(
                contrast
                for metric in ("accuracy", "macro_f1")
                for contrast in best(
                    "fedgr/table3", f"double(labels={labels}) {metric}", "fedgr", at=metric
                )
            ),
        )
        for labels in (2, 3)
    ),
    Claim(
        "fedgr-cifar10",
        "FedGR has the best accuracy and macro-F1 on CIFAR-10 with 3 labels per client (Table 2).",
        tuple(
            contrast
            for metric in ("accuracy", "macro_f1")
            for contrast in best(
                "fedgr/table2", f"cifar10 double(labels=3) {metric}", "fedgr", at=metric
            )
        ),
    ),
    Claim(
        "fedgr-double-imbalance",
        "Double imbalance costs FedAvg more than label imbalance or quantity imbalance alone "
        "(Figure 2).",
        tuple(
            Contrast(
                f"{alone} - double imbalance",
                (
                    Term(1, "fedgr/figure2", "FedAvg", alone),
                    Term(-1, "fedgr/figure2", "FedAvg", "double imbalance"),
                ),
            )
            for alone in ("label imbalance", "quantity imbalance")
        ),
        printed="FedAvg loses about 16 points",
    ),
    Claim(
        "fedgr-each-part-helps",
        "Unbalanced softmax and gravitation each improve on FedAvg (Table 5, Fashion-MNIST).",
        tuple(_part_minus_fedavg(part) for part in (_SOFTMAX, _GRAVITY)),
    ),
    Claim(
        "fedgr-both-parts-help-most",
        "Both parts together are above either alone (Table 5, Fashion-MNIST).",
        tuple(
            minus("fedgr/table5", "fashion_mnist", _WHOLE, part) for part in (_SOFTMAX, _GRAVITY)
        ),
    ),
    Claim(
        "fedgr-rounds",
        "FedGR needs the fewest rounds to reach FedAvg's last accuracy (Table 4, Fashion-MNIST).",
        tuple(
            minus("fedgr/table4", "fashion_mnist double(labels=3) rounds_to_target", other, "fedgr")
            for other in dict.fromkeys(row.row for row in printed.load("fedgr/table4"))
            if other != "fedgr"
        ),
    ),
    Claim(
        "fedgr-best-baselines",
        "FedRS and FedGC are the best baselines (Table 3, 3 labels per client, accuracy).",
        tuple(
            contrast
            for method in ("fedrs", "fedgc")
            for contrast in best(
                "fedgr/table3",
                "double(labels=3) accuracy",
                method,
                tuple(row for row in _GR_ROWS if row not in ("fedrs", "fedgc", "fedgr")),
            )
        ),
    ),
)
