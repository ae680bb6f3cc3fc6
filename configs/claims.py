"""What the five papers claim, as contrasts between numbers of their tables and figures."""

import itertools
from collections.abc import Iterable, Sequence

from experiments import printed
from experiments.verdicts import Claim, Contrast, Term
from fedjax_skew.report import names

_FEDVLS_BASELINES = ("fedavg", "fedlc", "fedrs", "fedsam", "fedntd", "fedlmd")
_SERVER_TRAINING = ("creff", "fedic")  # FedLF's baselines that train on the server


def _minus(name: str, column: str, first: str, second: str, at: str = "") -> Contrast:
    """One row minus another."""
    label = f"{_words(first)} - {_words(second)}{f' at {at}' if at else ''}"
    return Contrast(label, (Term(1, name, first, column), Term(-1, name, second, column)))


def _words(row: str) -> str:
    return names.method(row) if "=" not in row else row


def _best(
    name: str, column: str, row: str, others: Sequence[str] = (), at: str = ""
) -> tuple[Contrast, ...]:
    """A row minus every other one of a column; minus the given ones if there are any."""
    rows = dict.fromkeys(r.row for r in printed.load(name) if r.column == column)
    return tuple(_minus(name, column, row, other, at) for other in others or rows if other != row)


def _falls(name: str, row: str, columns: Sequence[str]) -> tuple[Contrast, ...]:
    """A row's number falls from each column to the next."""
    return tuple(
        Contrast(
            f"{_words(row)}: {before} - {after}",
            (Term(1, name, row, before), Term(-1, name, row, after)),
        )
        for before, after in itertools.pairwise(columns)
    )


def _gap_grows(name: str, first: str, second: str, wide: str, narrow: str, label: str) -> Contrast:
    """The gap between two rows is wider in one column than in another."""
    return Contrast(
        f"gap of {_words(first)} to {_words(second)}: {label}",
        (
            Term(1, name, first, wide),
            Term(-1, name, second, wide),
            Term(-1, name, first, narrow),
            Term(1, name, second, narrow),
        ),
    )


def _chain(name: str, column: str, rows: Sequence[str]) -> tuple[Contrast, ...]:
    """Every row is above the one before it."""
    return tuple(_minus(name, column, after, before) for before, after in itertools.pairwise(rows))


def _beta(beta: float) -> str:
    return f"cifar10 dirichlet(beta={beta})"


_T5 = "cifar10 dirichlet(beta=0.5) local_epochs={}"
FEDLC = (
    *(
        Claim(
            f"fedlc-dirichlet{beta}",
            f"FedLC is the best method of Table 1 on CIFAR-10 at beta={beta}.",
            _best("fedlc/table1", _beta(beta), "fedlc"),
        )
        for beta in (0.05, 0.1, 0.3, 0.5)
    ),
    Claim(
        "fedlc-gap-grows-with-skew",
        "The gap between FedLC and FedAvg is wider on highly skewed data (beta 0.05 and 0.1) than "
        "at beta=0.5 (Table 1, CIFAR-10).",
        tuple(
            _gap_grows(
                "fedlc/table1", "fedlc", "fedavg", _beta(beta), _beta(0.5), f"beta={beta} - 0.5"
            )
            for beta in (0.05, 0.1)
        ),
    ),
    Claim(
        "fedlc-quantity2",
        "FedLC is the best method under quantity-based label skew (Table 2, CIFAR-10, alpha=2).",
        _best("fedlc/table2", "cifar10 quantity(alpha=2)", "fedlc"),
    ),
    Claim(
        "fedlc-synthetic",
        "FedLC is the best method on Synthetic(0,0), (0.5,0.5) and (1,1) (Table 4).",
        tuple(
            contrast
            for skew in ("(0,0)", "(0.5,0.5)", "(1,1)")
            for contrast in _best("fedlc/table4", f"synthetic synthetic{skew}", "fedlc", at=skew)
        ),
    ),
    Claim(
        "fedlc-gap-shrinks-with-epochs",
        "The gap between FedLC and FedAvg is wider at E=1 than at E=5, 10 and 20 (Table 5, "
        "CIFAR-10, beta=0.5).",
        tuple(
            _gap_grows(
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
            for contrast in _falls(
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
            for contrast in _best("fedlc/table6", f"num_clients={m}", "fedlc", at=f"{m} clients")
        ),
    ),
    *(
        Claim(
            f"fedlc-with-{other}",
            f"FedLC with {names.method(other)} is above FedLC (Table 7, CIFAR-10, beta=0.3).",
            (_minus("fedlc/table7", _beta(0.3), f"fedlc+{other}", "fedlc"),),
        )
        for other in ("scaffold", "fedprox")
    ),
    Claim(
        "fedlc-missing-classes-fall",
        "After a local update of FedAvg missing classes fall to about zero (below 5 %), while "
        "majority classes rise above the global model (Figure 2).",
        (
            Contrast("5 - vacant after", (Term(-1, "fedlc/figure2", "vacant after", ""),), 5.0),
            _minus("fedlc/figure2", "", "vacant before", "vacant after"),
            _minus("fedlc/figure2", "", "majority after", "majority before"),
        ),
        printed="almost zero; higher than the global model",
    ),
    Claim(
        "fedlc-per-class-accuracy",
        "FedLC's local models and their average have a higher mean accuracy per class than "
        "FedAvg's (Figure 6).",
        tuple(
            _minus("fedlc/figure6", column, "FedLC", "FedAvg", column)
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

_ABLATION = [
    f"l_local={a} l_global={a} delta_ciw={b} delta_cq={c}"
    for a, b, c in ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1))
]


def _longtail(factor: int, alpha: float, dataset: str = "cifar10", metric: str = "") -> str:
    words = f"{dataset} longtail(if={factor})+dirichlet(alpha={alpha})"
    return f"{words} {metric}".strip()


FEDLC_LT = (
    *(
        Claim(
            f"fedlc_lt-if{factor}",
            f"FedLC-LT is the best method of Table I on CIFAR-10 with IF={factor}.",
            _best("fedlc_lt/table1", _longtail(factor, 0.4), "fedlc_lt"),
        )
        for factor in (100, 50, 10)
    ),
    Claim(
        "fedlc_lt-ensembles-below-fedavg",
        "FedBE, FedDF and FedGen are below FedAvg (Table I, CIFAR-10, IF=100).",
        tuple(
            _minus("fedlc_lt/table1", _longtail(100, 0.4), "fedavg", method)
            for method in ("fedbe", "feddf", "fedgen")
        ),
    ),
    Claim(
        "fedlc_lt-ablation",
        "Each part adds to FedLC-LT in the order of Table III: both calibrations, then the class "
        "weights, the class query, and both.",
        _chain("fedlc_lt/table3", "accuracy", _ABLATION),
    ),
    Claim(
        "fedlc_lt-classifier",
        "Training the classifier again on balanced data gains most of all blocks (Figure 2).",
        tuple(
            _minus("fedlc_lt/figure2", "accuracy", "classifier", block)
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

_VLS1 = "cifar10 mobilenet_v2 dirichlet(beta=0.05)"
_NEITHER, _LOGIT, _DISTIL, _BOTH = (
    f"l_dis={dis} l_logit={logit}" for dis, logit in ((0, 0), (0, 1), (1, 0), (1, 1))
)


def _within(name: str, column: str, rows: Sequence[str], limit: float) -> Iterable[Contrast]:
    """No two of the rows differ by more than a limit."""
    for first in rows:
        for second in rows:
            if first != second:
                terms = (Term(-1, name, first, column), Term(1, name, second, column))
                yield Contrast(f"{limit:g} - ({first} - {second})", terms, limit)


FEDVLS = (
    Claim(
        "fedvls-dirichlet0.05",
        "FedVLS is above FedAvg, FedLC, FedRS, FedSAM, FedNTD and FedLMD on CIFAR-10 at beta=0.05 "
        "(Table 1).",
        _best("fedvls/table1", _VLS1, "fedvls", _FEDVLS_BASELINES),
    ),
    Claim(
        "fedvls-fedlc-below-fedavg",
        "FedLC falls below FedAvg on CIFAR-10 at beta=0.05 (Table 1).",
        (_minus("fedvls/table1", _VLS1, "fedavg", "fedlc"),),
    ),
    Claim(
        "fedvls-each-term-helps",
        "The distillation and the logit suppression each help (Table 5, CIFAR-10).",
        tuple(_minus("fedvls/table5", "cifar10", one, _NEITHER) for one in (_DISTIL, _LOGIT)),
    ),
    Claim(
        "fedvls-both-terms-help-most",
        "Both terms together help more than either alone (Table 5, CIFAR-10).",
        tuple(_minus("fedvls/table5", "cifar10", _BOTH, one) for one in (_DISTIL, _LOGIT)),
    ),
    Claim(
        "fedvls-insensitive",
        "The accuracy hardly depends on lambda: no two values from 0.05 to 1 differ by more than 2 "
        "points (Table 4, CIFAR-10).",
        tuple(
            _within(
                "fedvls/table4", "cifar10", [f"lambda={v}" for v in (0.05, 0.1, 0.25, 0.5, 1)], 2.0
            )
        ),
    ),
    *(
        Claim(
            f"fedvls-with-{other}",
            f"FedVLS with {names.method(other)} is above both of its parts (Table 6, CIFAR-10).",
            tuple(
                _minus("fedvls/table6", "cifar10", f"{other}+fedvls", part)
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


def _lf(factor: int, metric: str) -> str:
    return _longtail(factor, 0.5, "cifar10_lt", metric)


_PLAIN = tuple(
    row
    for row in dict.fromkeys(row.row for row in printed.load("fedlf/table1"))
    if row not in (*_SERVER_TRAINING, "fedlf")
)
FEDLF = (
    *(
        Claim(
            f"fedlf-if{factor}",
            f"FedLF has the best overall accuracy on CIFAR-10-LT with IF={factor} (Table 1).",
            _best("fedlf/table1", _lf(factor, "accuracy"), "fedlf"),
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
                _minus("fedlf/table3", "longtail(if=50)+dirichlet(alpha=0.5) accuracy", one, other)
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
        _best("fedlf/table1", _lf(100, "accuracy"), "fedrs", _PLAIN),
    ),
    Claim(
        "fedlf-focal",
        "Focal loss is below FedAvg (Table 1, CIFAR-10-LT, IF=100).",
        (_minus("fedlf/table1", _lf(100, "accuracy"), "fedavg", "focal"),),
    ),
)

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


FEDGR = (
    *(
        Claim(
            f"fedgr-labels{labels}",
            "FedGR has the best accuracy and macro-F1 on Fashion-MNIST with "
            f"{labels} labels per client (Table 3).",
            tuple(
                contrast
                for metric in ("accuracy", "macro_f1")
                for contrast in _best(
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
            for contrast in _best(
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
            _minus("fedgr/table5", "fashion_mnist", _WHOLE, part) for part in (_SOFTMAX, _GRAVITY)
        ),
    ),
    Claim(
        "fedgr-rounds",
        "FedGR needs the fewest rounds to reach FedAvg's last accuracy (Table 4, Fashion-MNIST).",
        tuple(
            _minus(
                "fedgr/table4", "fashion_mnist double(labels=3) rounds_to_target", other, "fedgr"
            )
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
            for contrast in _best(
                "fedgr/table3",
                "double(labels=3) accuracy",
                method,
                tuple(row for row in _GR_ROWS if row not in ("fedrs", "fedgc", "fedgr")),
            )
        ),
    ),
)

CLAIMS = (*FEDLC, *FEDLC_LT, *FEDVLS, *FEDLF, *FEDGR)
