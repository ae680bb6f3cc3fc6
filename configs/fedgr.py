"""FedGR. Federated Learning with Gravitation Regulation for Double Imbalance Distribution, DASFAA
2023."""

import ml_collections

from experiments.papers import Figure, Paper, show
from experiments.recipes import C, H, Note, P, Setting
from experiments.scale import use_model

_RECIPE = (
    Setting("num_clients", 100, P),
    Setting("participation", 0.1, P),
    Setting("rounds", 1000, P),
    Setting("local_epochs", 4, C, "E is 5 in the code, but its loop runs E - 1 epochs."),
    Setting("batch_size", 64, P),
    Setting("client_lr", 0.1, P),
    Setting("weight_decay", 5e-4, P),
    Setting(
        "momentum",
        0.0,
        H,
        "The authors' code uses 0.9 with a learning rate of 0.03, whereas the paper prints 0.1.",
    ),
    Setting("augment", "none", H),
    Setting("clip_norm", 100.0, C),
    Setting("clip_norm", 10.0, H, "SCAFFOLD diverges with 100.", methods=("scaffold",)),
    Setting(
        "client_lr",
        0.005,
        H,
        "pFedMe's own value for a CNN; with 0.1 a step moves 1.5 times the distance to the "
        "client's own model, and training diverges.",
        methods=("pfedme",),
    ),
    Setting(
        "hparams.pfedme.inner_lr", 0.01, H, "pFedMe's own value for a CNN.", methods=("pfedme",)
    ),
    Setting("hparams.fedgr.lam", 0.5, P),
    Setting("hparams.fedgr.lam", 0.0, P, extras={"gravitation_regularizer": "0"}),
    Setting("hparams.fedgr.unbalanced", True, P),
    Setting("hparams.fedgr.unbalanced", False, P, extras={"unbalanced_softmax": "0"}),
    Setting("num_seeds", 5, P),
    Setting(
        "on_nonfinite",
        "skip",
        H,
        "A client whose training is not finite is left out of its round, which happens "
        "occasionally with a learning rate of 0.1.",
    ),
)


def _cpu(config: ml_collections.ConfigDict) -> None:
    """A small network, and one epoch where all clients train."""
    use_model(config, "mlp" if config.dataset.name == "fashion_mnist" else "simple_cnn")
    if config.participation == 1:
        config.local_epochs = 1
    config.num_seeds = min(config.num_seeds, 2)


def _short(config: ml_collections.ConfigDict) -> None:
    """A fifth of the rounds, an eighth where all clients train."""
    config.rounds //= 8 if config.participation == 1 else 5


_IMBALANCES = {
    "double(labels=3,power=0)": "label imbalance",
    "double(labels=10)": "quantity imbalance",
    "double(labels=3)": "double imbalance",
}
_TEN = {"num_clients": 10, "participation": 1.0}
_BASELINES = (
    *("fedavg", "fedprox", "scaffold", "fednova", "perfedavg", "pfedme", "fedopt", "moon"),
    *("fedrs", "fedgc"),
)

_FIGURES = (
    Figure(
        1,
        "Samples of each class and client: CIFAR-10 on ten clients under (a) label imbalance, (b) "
        "quantity imbalance and (c) double imbalance.",
        "partitions",
        tuple(
            show("fedavg", "cifar10", "tfcnn", partition, panel=f"({letter}) {panel}", fields=_TEN)
            for letter, (partition, panel) in zip("abc", _IMBALANCES.items(), strict=True)
        ),
        chosen=(
            "(a) three labels per client, with equal shares of each label; (b) all labels, with "
            "shares by the power law; (c) three labels, with shares by the power law.",
            "The partition is that of seed 0; nothing is trained.",
        ),
    ),
    Figure(
        2,
        "Test accuracy of existing methods on CIFAR-10 under label imbalance, quantity imbalance "
        "and double imbalance, on the ten clients of Figure 1.",
        "accuracy_bars",
        tuple(
            show(method, "cifar10", "tfcnn", partition, panel=panel, fields={**_TEN, "rounds": 200})
            for partition, panel in _IMBALANCES.items()
            for method in _BASELINES
        ),
        chosen=(
            "Methods: the baselines of Table 2.",
            "All ten clients take part in each of 200 rounds.",
        ),
        options={"which": "mean_last_50", "xlabel": "distribution of the data"},
        smoke="method=fedavg,fedprox,fedrs",
    ),
    Figure(
        4,
        "Effect of the weight lambda of the gravitation regulariser on FedGR: CIFAR-10 and "
        "Fashion-MNIST with two and three labels per client.",
        "sensitivity",
        tuple(
            show(
                "fedgr",
                dataset,
                "tfcnn",
                f"double(labels={labels})",
                series=f"{labels} labels per client",
                panel="{dataset}: weight λ",
                x=lam,
                fields={"hparams.fedgr.lam": lam},
            )
            for dataset in ("cifar10", "fashion_mnist")
            for labels in (2, 3)
            for lam in (0.1, 0.3, 0.5, 0.7, 0.9)
        ),
        chosen=("Swept values: 0.1, 0.3, 0.5, 0.7 and 0.9. Everything else as in Tables 2 and 3.",),
        options={"which": "mean_last_50"},
        smoke="dataset=cifar10,lam=0.1,0.5,0.9",
    ),
    Figure(
        5,
        "t-SNE of the features of CIFAR-10 test samples: FedAvg and FedGR.",
        "tsne",
        tuple(show(m, "cifar10", "tfcnn", "double(labels=3)") for m in ("fedavg", "fedgr")),
        chosen=(
            "Three labels per client; the runs are those of Table 2. 60 test samples per class.",
        ),
    ),
)

PAPER = Paper(
    key="fedgr",
    about="Under double imbalance, a client has few labels, with very different numbers of "
    "samples. FedGR trains an unbalanced softmax on clients, which scales the logit of a class by "
    "the inverse of its share. On the server, a regulariser moves the clients' class vectors of "
    "the same label towards each other, and those of different labels apart, before averaging.",
    recipe=_RECIPE,
    reported="mean_last_50",
    cpu=_cpu,
    short=_short,
    figures=_FIGURES,
    notes=(
        Note(H, "Power of the power law: 1."),
        Note(H, "Hyper-parameters of the other baselines: their own papers' defaults."),
        Note(H, "Per-FedAvg and pFedMe: the global model is evaluated, not the clients' own."),
        Note(H, "Fashion-MNIST: all 60,000 training samples (the paper says 50,000).", ("table3",)),
        Note(H, "The unbalanced softmax has the default form (`hparams.fedgr.form`)."),
        Note(
            H,
            "The target is FedAvg's accuracy in its last round, separately for each seed; the "
            "first evaluated round that reaches it counts.",
            ("table4",),
        ),
    ),
)
get_config = PAPER.get_config
