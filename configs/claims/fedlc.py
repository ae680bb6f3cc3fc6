"""What FedLC claims."""

from experiments.contrasts import best, falls, gap_grows, minus
from experiments.verdicts import Claim, Contrast, Term
from fedjax_skew.report import names


def _beta(beta: float) -> str:
    return f"cifar10 dirichlet(beta={beta})"


_T5 = "cifar10 dirichlet(beta=0.5) local_epochs={}"
CLAIMS = (
    *(
        Claim(
            f"fedlc-dirichlet{beta}",
            f"FedLC is the best method of Table 1 on CIFAR-10 at beta={beta}.",
            best("fedlc/table1", _beta(beta), "fedlc"),
        )
        for beta in (0.05, 0.1, 0.3, 0.5)
    ),
    Claim(
        "fedlc-gap-grows-with-skew",
        "The gap between FedLC and FedAvg is wider on highly skewed data (beta 0.05 and 0.1) than "
        "at beta=0.5 (Table 1, CIFAR-10).",
        tuple(
            gap_grows(
                "fedlc/table1", "fedlc", "fedavg", _beta(beta), _beta(0.5), f"beta={beta} - 0.5"
            )
            for beta in (0.05, 0.1)
        ),
    ),
    Claim(
        "fedlc-quantity2",
        "FedLC is the best method under quantity-based label skew (Table 2, CIFAR-10, alpha=2).",
        best("fedlc/table2", "cifar10 quantity(alpha=2)", "fedlc"),
    ),
    Claim(
        "fedlc-synthetic",
        "FedLC is the best method on Synthetic(0,0), (0.5,0.5) and (1,1) (Table 4).",
        tuple(
            contrast
            for skew in ("(0,0)", "(0.5,0.5)", "(1,1)")
            for contrast in best("fedlc/table4", f"synthetic synthetic{skew}", "fedlc", at=skew)
        ),
    ),
    Claim(
        "fedlc-gap-shrinks-with-epochs",
        "The gap between FedLC and FedAvg is wider at E=1 than at E=5, 10 and 20 (Table 5, "
        "CIFAR-10, beta=0.5).",
        tuple(
            gap_grows(
                "fedlc/table5", "fedlc", "fedavg", _T5.format(1), _T5.format(e), f"E=1 - E={e}"
            )
            for e in (5, 10, 20)
        ),
    ),
    Claim(
        "fedlc-falls-with-clients",
        "The accuracy of FedAvg and FedLC falls as the number of clients grows (Table 6).",
        tuple(
            contrast
            for method in ("fedavg", "fedlc")
            for contrast in falls(
                "fedlc/table6", method, [f"num_clients={m}" for m in (10, 30, 50, 100)]
            )
        ),
    ),
    Claim(
        "fedlc-first-with-clients",
        "FedLC is the best method for every number of clients (Table 6).",
        tuple(
            contrast
            for m in (10, 30, 50, 100)
            for contrast in best("fedlc/table6", f"num_clients={m}", "fedlc", at=f"{m} clients")
        ),
    ),
    *(
        Claim(
            f"fedlc-with-{other}",
            f"FedLC with {names.method(other)} is above FedLC (Table 7, CIFAR-10, beta=0.3).",
            (minus("fedlc/table7", _beta(0.3), f"fedlc+{other}", "fedlc"),),
        )
        for other in ("scaffold", "fedprox")
    ),
    Claim(
        "fedlc-missing-classes-fall",
        "After a local update of FedAvg missing classes fall to about zero (below 5 %), while "
        "majority classes rise above the global model (Figure 2).",
        (
            Contrast("5 - vacant after", (Term(-1, "fedlc/figure2", "vacant after", ""),), 5.0),
            minus("fedlc/figure2", "", "vacant before", "vacant after"),
            minus("fedlc/figure2", "", "majority after", "majority before"),
        ),
        printed="almost zero; higher than the global model",
    ),
    Claim(
        "fedlc-per-class-accuracy",
        "FedLC's local models and their average have a higher mean accuracy per class than "
        "FedAvg's (Figure 6).",
        tuple(
            minus("fedlc/figure6", column, "FedLC", "FedAvg", column)
            for column in ("local models", "averaged model")
        ),
        printed="a picture",
    ),
    Claim(
        "fedlc-deviation-bound",
        "Calibration enlarges the deviation bound of minority classes (Theorem 3).",
        (
            Contrast(
                "calibrated - plain",
                (
                    Term(1, "fedlc/figure6", "deviation bound", "calibrated"),
                    Term(-1, "fedlc/figure6", "deviation bound", "plain"),
                ),
            ),
        ),
        printed="a theorem",
    ),
)
