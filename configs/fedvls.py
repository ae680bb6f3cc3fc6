"""FedVLS. Guo et al., Exploring Vacant Classes in Label-Skewed Federated Learning, AAAI 2025."""

import ml_collections

from experiments.papers import Figure, Paper, show
from experiments.printed import Row
from experiments.recipes import C, FromRow, H, Note, P, Setting
from experiments.scale import use_model

_HARD = ("cifar100", "tiny_imagenet")
_KEEP_MOMENTUM = ("fedavg", "fedprox", "moon", "fedexp", "fedlc", "fedrs", "fedntd", "fedmr")
_APPENDIX = {  # Table 10 of the technical appendix.
    "fedprox.mu": 0.01,
    "moon.mu": 0.01,
    "moon.temperature": 0.5,
    "fedexp.eps": 0.01,
    "fedlc.tau": 0.5,
    "fedrs.alpha": 0.7,
    "fedsam.rho": 0.1,
    "fedntd.beta": 0.1,
    "fedlmd.beta": 0.1,
    "fedconcat.num_clusters": 2,
    "fedgf.rho": 0.1,
    "fedgf.server_rho": 0.1,
    "fedgf.threshold": 0.3,
}


def _published(extra: str = "") -> FromRow:
    def read(row: Row) -> str:
        if not row.partition.startswith("dirichlet"):
            return row.partition
        return row.partition.replace(")", f"{extra},rounding=published)")

    return FromRow(f"dirichlet(beta=...{extra},rounding=published)", read)


_RECIPE = (
    Setting(
        "method",
        "fedvls",
        P,
        "FedLC + FedVLS is FedVLS, whose loss contains the calibration.",
        methods=("fedlc+fedvls",),
    ),
    Setting(
        "partition",
        _published(),
        C,
        "A client that holds its fair share gets no more, every client has at least 10 samples, "
        "and cumulative shares are rounded down.",
    ),
    Setting(
        "partition",
        _published(",min_size=256"),
        C,
        "At least 256 samples on MNIST.",
        data=("mnist",),
    ),
    Setting("num_clients", 10, P),
    Setting("rounds", 100, P),
    Setting("rounds", 50, P, data=("mnist", "tiny_imagenet")),
    Setting("local_epochs", 10, P),
    Setting("local_epochs", 5, P, data=("mnist",)),
    Setting("batch_size", 64, P),
    Setting("drop_last", True, C),
    Setting("client_lr", 0.01, P),
    Setting("momentum", 0.9, P),
    Setting(
        "keep_momentum",
        True,
        C,
        "Clients keep their momentum between rounds in these methods and reset it in the others.",
        methods=_KEEP_MOMENTUM,
    ),
    Setting("weight_decay", 1e-5, P),
    Setting("weight_decay", 1e-4, P, data=_HARD),
    Setting("augment", "autoaugment", C, "With crop and flip."),
    Setting("augment", "none", C, data=("mnist",)),
    Setting(
        "eval_train_set",
        True,
        C,
        "The authors' MNIST loader hands the training pool to the caller as the test set.",
        data=("mnist",),
    ),
    *(
        Setting(f"hparams.{name}", value, P, parts=(name.partition(".")[0],))
        for name, value in _APPENDIX.items()
    ),
    Setting(
        "hparams.fedexp.average", False, C, "Evaluated at its last iterate.", parts=("fedexp",)
    ),
    Setting("hparams.fedrs.head_bias", True, C, parts=("fedrs",)),
    Setting(
        "hparams.fedmr.mu",
        0.001,
        C,
        "With the 4 of the appendix, training collapses in the first round (MNIST: 9.9 %).",
        parts=("fedmr",),
    ),
    *(
        Setting(field, value, P, "'As in its paper'.", methods=("fedconcat",))
        for field, value in (
            ("rounds", 50 + 1000),
            ("local_epochs", 10),
            ("hparams.fedconcat.encoder_rounds", 50),
            ("hparams.fedconcat.head_steps", 3),
        )
    ),
    Setting("eval_every", 10, H, methods=("fedconcat",)),
    Setting("rounds", 10_000, P, "'As in its paper'.", methods=("fedgf",), data=("cifar10",)),
    Setting("rounds", 20_000, P, "'As in its paper'.", methods=("fedgf",), data=("cifar100",)),
    Setting(
        "rounds",
        250,
        H,
        "As many epochs in total as the other methods.",
        methods=("fedgf",),
        data=("mnist",),
    ),
    Setting(
        "rounds",
        500,
        H,
        "As many epochs in total as the other methods.",
        methods=("fedgf",),
        data=("tiny_imagenet",),
    ),
    Setting("local_epochs", 1, P, "'As in its paper'.", methods=("fedgf",)),
    Setting("eval_every", 5, H, methods=("fedgf",)),
    Setting("hparams.fedvls.lam", 0.1, P),
    Setting("hparams.fedvls.lam", 0.5, P, data=_HARD),
    Setting(
        "hparams.fedvls.lam",
        FromRow("as printed", lambda row: float(row.extras["lambda"])),
        P,
        places=("table4",),
    ),
    Setting("hparams.fedvls.lam", 0.0, P, extras={"l_dis": "0"}),
    Setting(
        "hparams.fedvls.logit_weight",
        0.005,
        C,
        "With the weight 1 that eq. 6 implies training collapses; `fedjax_skew/methods/fedvls.py` "
        "has the measurement.",
    ),
    Setting("hparams.fedvls.logit_weight", 0.0, P, extras={"l_logit": "0"}),
    Setting("num_seeds", 3, P),
)


def _cpu(config: ml_collections.ConfigDict) -> None:
    """A small network, a fifth of the local epochs, and crop and flip alone.

    On a CPU, AutoAugment takes several times as long as training a small network.
    """
    if config.model == "mlp":
        return
    use_model(config, "simple_cnn")
    config.augment = "crop_flip"
    if config.method == "fedgf":
        config.rounds = 200  # Of one epoch each, as many in total as the other methods train.
    else:
        config.local_epochs //= 5
    config.num_seeds = min(config.num_seeds, 2)


def _short(config: ml_collections.ConfigDict) -> None:
    """A quarter of the rounds."""
    if config.model != "mlp":
        config.rounds //= 4


_COUNTS = "counts(path=configs/fedvls_figure1.csv)"
_METHODS = ("fedavg", "fedprox", "fedlc", "fedrs", "fedsam", "fedntd", "fedvls")

_FIGURES = (
    Figure(
        1,
        "Test accuracy per class of the initial global model and of the updated local model of one "
        "client on CIFAR-10: (a) IID data, (b-d) skewed data with FedAvg, FedLC and FedVLS; in the "
        "titles the accuracy of the aggregated model.",
        "local_update",
        tuple(
            show(method, "cifar10", "mobilenet_v2", partition, panel=panel, fields={"num_seeds": 1})
            for method, partition, panel in (
                ("fedavg", "iid", "(a) IID, FedAvg"),
                ("fedavg", _COUNTS, "(b) skewed, FedAvg"),
                ("fedlc", _COUNTS, "(c) skewed, FedLC"),
                ("fedvls", _COUNTS, "(d) skewed, FedVLS"),
            )
        ),
        chosen=(
            "The skewed partition is the one the appendix prints, in fedvls_figure1.csv; client 0 "
            "is the one with the vacant classes 0, 1, 2, 4, 6 and 7 of the text.",
            "The initial model: each method's own after the rounds of Table 1; one seed is "
            "trained.",
        ),
        options={"clients": (0,)},
    ),
    Figure(
        2,
        "Confusion matrix of the updated local model of client 3 on CIFAR-10 under Dirichlet label "
        "skew (beta=0.5), trained with FedLC.",
        "confusion",
        (show("fedlc", "cifar10", "mobilenet_v2", "dirichlet(beta=0.5)", fields={"num_seeds": 1}),),
        chosen=(
            "The paper's partition is a picture of its appendix: here it is the draw of seed 0, so "
            "that other classes are the rare ones.",
            "The model: after the rounds of Table 1 and one more local update; one seed is "
            "trained.",
        ),
        options={"client": 3},
    ),
    Figure(
        3,
        "Test accuracy over rounds on CIFAR-10 and CIFAR-100 under Dirichlet label skew (beta 0.1 "
        "and 0.05): FedVLS and six other methods.",
        "curves",
        tuple(
            show(
                method,
                dataset,
                "mobilenet_v2",
                f"dirichlet(beta={beta})",
                panel=f"{{dataset}}, β = {beta}",
            )
            for dataset in ("cifar10", "cifar100")
            for beta in (0.1, 0.05)
            for method in _METHODS
        ),
        chosen=(
            "The six methods: FedAvg, FedProx, FedLC, FedRS, FedSAM and FedNTD. The runs are "
            "those of Table 1.",
        ),
        smoke="dataset=cifar10,method=fedavg,fedlc,fedvls",
    ),
    Figure(
        4,
        "Test accuracy over rounds on CIFAR-10 (beta=0.05) by participation rate R, local epochs "
        "E and number of clients N: FedVLS and six other methods.",
        "curves",
        tuple(
            show(
                method,
                "cifar10",
                "mobilenet_v2",
                "dirichlet(beta=0.05)",
                panel=panel,
                fields=fields,
            )
            for panel, fields in (
                ("R = 0.5", {"participation": 0.5}),
                ("R = 1", {"participation": 1.0}),
                ("E = 10", {"local_epochs": 10}),
                ("E = 20", {"local_epochs": 20}),
                ("N = 10", {"num_clients": 10}),
                ("N = 30", {"num_clients": 30}),
            )
            for method in _METHODS
        ),
        chosen=("The methods are those of Figure 3.",),
        smoke="method=fedavg,fedvls,participation=0.5,1",
    ),
)

PAPER = Paper(
    key="fedvls",
    about="Under strong label skew, clients lack whole classes, which their local models forget. "
    "FedVLS adds two terms to a loss calibrated by the client's label distribution: distillation "
    "of the global model on the vacant classes, and suppression of logits of classes that a "
    "sample does not have.",
    recipe=_RECIPE,
    reported="best",
    cpu=_cpu,
    short=_short,
    figures=_FIGURES,
    notes=(
        Note(
            P,
            "FedLC rows: FedLC's own loss with the appendix's tau. Table 5 without both terms is "
            "the log-prior form of eq. 2, which the paper also calls FedLC.",
        ),
        Note(
            C,
            "The logit suppression has the form of the authors' code; the printed form collapses.",
        ),
        Note(
            C,
            "MNIST is compared by the accuracy on the training pool; a second table shows the "
            "held-out accuracy.",
            ("table1", "table5"),
        ),
        Note(
            H,
            "The training set is the official one. Pixels are standardised; the authors' code "
            "maps those of MNIST to -1..1, with which FedVLS at beta=0.05 (first seed) has 68.6 "
            "instead of 71.0 % after 15 rounds.",
        ),
    ),
    beyond={"table5": ("cifar10", "mnist", "dnn3")},
    training_pool=("mnist",),
)
get_config = PAPER.get_config
