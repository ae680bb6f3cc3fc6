"""FedLF. Adaptive Logit Adjustment and Feature Optimization in Federated Long-Tailed Learning, ACML
2024."""

import re

import ml_collections

from experiments.papers import Figure, Paper, show
from experiments.printed import Row
from experiments.recipes import C, FromRow, H, Note, P, Setting
from experiments.scale import use_model

_THRESHOLDS = {  # Class sizes (upper, lower) by dataset and imbalance factor.
    "cifar10_lt": {100: (1500, 200), 50: (1500, 200), 10: (1500, 600)},
    "cifar100_lt": {100: (200, 20), 50: (200, 20), 10: (300, 60)},
}


def _partition(row: Row) -> str:
    return row.partition.replace("if=0.1)", "if=10)").replace("+dir", "+grouped_dir")


def _thresholds(row: Row) -> tuple[int, int]:
    factor = re.search(r"if=(\d+)", _partition(row))
    assert factor is not None
    return _THRESHOLDS[row.dataset][int(factor[1])]


_RECIPE = (
    Setting(
        "partition",
        FromRow("grouped_dirichlet", _partition),
        C,
        "Dirichlet shares inside blocks of ten clients, then equal sizes. IF=0.1 of Table 4 is "
        "IF=10.",
    ),
    Setting("num_clients", 20, P),
    Setting("participation", 0.4, P),
    Setting("rounds", 200, P, "From the caption of Figure 2."),
    Setting("local_epochs", 5, C, "The paper calls E = 5 local iterations."),
    Setting("batch_size", 32, P),
    Setting("client_lr", 0.1, P),
    Setting("momentum", 0.0, C),
    Setting("weight_decay", 0.0, C),
    Setting("augment", "crop_flip", C),
    Setting(
        "group_thresholds",
        FromRow(
            "1500, 200 (CIFAR-10, IF 100 and 50); 1500, 600 (IF 10); CIFAR-100 200, 20; 300, 60",
            _thresholds,
        ),
        P,
    ),
    Setting(
        "server_data.labelled",
        0.02,
        H,
        "FEDIC alone keeps data on the server, so its clients divide the other 98 %; all other "
        "rows share a partition.",
        methods=("fedic",),
    ),
    *(
        Setting(
            "server_data.unlabelled_dataset",
            other,
            H,
            "FEDIC distils on the images of the other CIFAR set.",
            methods=("fedic",),
            data=(f"{own}_lt",),
        )
        for own, other in (("cifar10", "cifar100"), ("cifar100", "cifar10"))
    ),
    Setting("hparams.fedrs.alpha", 0.25, C, methods=("fedrs",)),
    Setting("hparams.fedrs.form", "code", C, methods=("fedrs",)),
    Setting("hparams.fedlf.alpha", 0.25, P),
    Setting("hparams.fedlf.tau", 100.0, P),
    Setting("hparams.fedlf.lam", 0.01, P),
    Setting("hparams.fedlf.gamma", 0.01, P),
    Setting("hparams.fedlf.lam", 0.0, P, extras={"l_c": "0"}),
    Setting("hparams.fedlf.gamma", 0.0, P, extras={"l_d": "0"}),
    Setting("num_seeds", 3, H, "The printed group accuracies are those of one run."),
    Setting("eval_every", 5, H),
)


def _cpu(config: ml_collections.ConfigDict) -> None:
    """A small network."""
    use_model(config, "simple_cnn")
    config.num_seeds = min(config.num_seeds, 2)


def _short(config: ml_collections.ConfigDict) -> None:
    """Half of the rounds."""
    config.rounds //= 2


_LONG_TAIL = "longtail(if=10)+dirichlet(alpha=0.5)"
_METHODS = ("fedavg", "fedprox", "fedbn", "fedrs", "focal", "creff", "fedic", "fedlf")
_WEIGHTS = (
    ("weight λ of the class centres", "hparams.fedlf.lam"),
    ("weight γ of the decorrelation", "hparams.fedlf.gamma"),
)

_FIGURES = (
    Figure(
        2,
        "(1) Test accuracy over rounds on CIFAR-10-LT with IF=10 and alpha=0.5, and (2) t-SNE of "
        "the features of test samples after all rounds.",
        "curves_and_tsne",
        tuple(
            show(
                method, "cifar10_lt", "resnet8", _LONG_TAIL, panel="{dataset}-LT, IF = 10, α = 0.5"
            )
            for method in _METHODS
        ),
        chosen=(
            "Methods: those of Table 1, whose runs these are; the features of FedAvg and FedLF are "
            "shown, 60 test samples per class.",
        ),
        options={"features_of": ("fedavg", "fedlf")},
        smoke="method=fedavg,fedrs,focal,fedlf",
    ),
    Figure(
        3,
        "Effect of the weights lambda (of the class-centre loss) and gamma (of the decorrelation "
        "loss) on FedLF.",
        "sensitivity",
        tuple(
            show(
                "fedlf",
                "cifar10_lt",
                "resnet8",
                _LONG_TAIL,
                panel=panel,
                x=x,
                fields={"hparams.fedlf.lam": 0.01, "hparams.fedlf.gamma": 0.01, field: x},
            )
            for panel, field in _WEIGHTS
            for x in (0.0001, 0.001, 0.01, 0.1, 1.0)
        ),
        chosen=(
            "Data: CIFAR-10-LT with IF=10 and alpha=0.5, as in Figure 2.",
            "Swept values: 0.0001, 0.001, 0.01, 0.1 and 1; the other weight is 0.01.",
        ),
        options={"which": "last", "log": True},
        smoke="x=0.0001,0.01,1",
    ),
)

PAPER = Paper(
    key="fedlf",
    about="FedLF trains on long-tailed data with three local terms: logits scaled by the client's "
    "class distribution (L_A), features drawn to class centres with an enforced margin (L_C), and "
    "decorrelated features (L_D).",
    recipe=_RECIPE,
    reported="last",
    cpu=_cpu,
    short=_short,
    figures=_FIGURES,
    notes=(
        Note(C, "The three losses have the form of the authors' code (`hparams.fedlf.form`)."),
        Note(H, "The last round is reported; the paper does not say which one it reports."),
        Note(
            H,
            "Hyper-parameters of the other baselines: their own papers' defaults; focal loss with "
            "alpha 0.25 and gamma 2.",
        ),
        Note(
            H,
            "FedBN: the global test accuracy is that of the averaged model with averaged "
            "statistics.",
        ),
        Note(H, "Table 3 is on CIFAR-10-LT, whose row of Table 1 it repeats.", ("table3",)),
    ),
)
get_config = PAPER.get_config
