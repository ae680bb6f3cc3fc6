"""FedLC-LT. Logit Calibration for Non-IID and Long-Tailed Data in Federated Learning."""

import ml_collections

from experiments.papers import Figure, Paper, Shown, show
from experiments.recipes import C, FromRow, H, Note, P, Setting
from experiments.scale import use_model

_OFF = {"l_local": "0", "l_global": "0", "delta_ciw": "0", "delta_cq": "0"}
_SWITCHES = {
    "l_local": "l_local",
    "l_global": "l_global",
    "class_importance": "delta_ciw",
    "class_query": "delta_cq",
}


def _switch(printed: str) -> FromRow:
    return FromRow("as printed", lambda row: row.extras[printed] == "1")


_RECIPE = (
    Setting(
        "partition",
        FromRow("grouped_dirichlet", lambda row: row.partition.replace("+dir", "+grouped_dir")),
        C,
        "Dirichlet shares inside blocks of ten clients, then equal sizes, as in the code of CReFF "
        "and FEDIC. Table I states no alpha; 0.4 is the paper's default.",
    ),
    Setting("num_clients", 20, P),
    Setting("participation", 0.4, P),
    Setting("rounds", 200, P),
    Setting("local_epochs", 0, P),
    Setting("local_steps", 10, P, "T = 10 counts steps; the analysis also calls them epochs."),
    Setting("batch_size", 64, P),
    Setting("client_lr", 0.1, P),
    Setting("momentum", 0.0, H),
    Setting("weight_decay", 0.0, H),
    Setting("augment", "none", H),
    Setting("dataset.image_size", 224, P, data=("mini_imagenet",)),
    Setting(
        "server_data.labelled",
        0.05,
        P,
        "Taken out before the long tail is created, for every method, so that all rows share one "
        "partition.",
    ),
    Setting(
        "server_data.unlabelled_dataset",
        "labelled",
        H,
        "FedDF and FedBE distil on the same images; FedLC-LT alone uses their labels.",
    ),
    Setting("method", "fedavg", P, "What is left when all four parts are off.", extras=_OFF),
    Setting("hparams.fedlc_lt.neighbors", 0.25, P),
    Setting("hparams.fedlc_lt.temperature", 4.0, P),
    Setting("hparams.fedlc_lt.lam", 0.001, P),
    Setting("hparams.fedlc_lt.steps", 100, P),
    *(
        Setting(f"hparams.fedlc_lt.{field}", _switch(printed), P, places=("table3",))
        for field, printed in _SWITCHES.items()
    ),
    *(
        Setting(
            f"hparams.fedgen.{field}",
            1.0,
            H,
            "The 10 of its paper is for a learning rate of 0.01; with 0.1 training diverges.",
            methods=("fedgen",),
        )
        for field in ("alpha", "beta")
    ),
    Setting("clip_norm", 10.0, H, "SCAFFOLD diverges without it.", methods=("scaffold",)),
    Setting("num_seeds", 3, P),
    Setting("eval_every", 5, H),
)


def _cpu(config: ml_collections.ConfigDict) -> None:
    """A ResNet-8 of width 16."""
    use_model(config, "resnet8_w16")
    config.num_seeds = min(config.num_seeds, 2)


def _short(config: ml_collections.ConfigDict) -> None:
    """A network of two convolutions without normalisation, with gradients clipped at norm 10."""
    use_model(config, "simple_cnn")
    config.clip_norm = 10.0


_SWEEPS = {  # By axis label: the field, its values, and their factor in the configuration.
    "similar clients M": ("hparams.fedlc_lt.neighbors", (1, 3, 5, 10, 15), 1 / 20),
    "local steps T": ("local_steps", (5, 10, 20, 40), 1),
    "distillation steps J": ("hparams.fedlc_lt.steps", (25, 50, 100, 200), 1),
}


def _point(label: str, x: float, alpha: float = 0.4, **fields: float) -> Shown:
    partition = f"longtail(if=100)+dirichlet(alpha={alpha})"
    return show("fedlc_lt", "cifar10", "resnet8", partition, panel=label, x=x, fields=fields)


_FIGURES = (
    Figure(
        2,
        "FedAvg's model with one block retrained on a balanced auxiliary set: test accuracy, "
        "and cosine and Euclidean distance of the average logits to those of FedAvg; CIFAR-10, "
        "IF=50, alpha=0.4.",
        "blocks",
        (
            show(
                "fedavg",
                "cifar10",
                "resnet8",
                "longtail(if=50)+dirichlet(alpha=0.4)",
                fields={"server_data.labelled": 0.02},
            ),
        ),
        chosen=(
            "Retraining: 500 steps of SGD, learning rate 0.01, batches of 64, running statistics "
            "fixed.",
            "Average logits: by class, over the test set; distances are averaged over classes.",
            "The stem belongs to the first block.",
        ),
        options={"steps": 500, "learning_rate": 0.01, "batch_size": 64},
    ),
    Figure(
        4,
        "Effect of FedLC-LT's hyper-parameters on CIFAR-10 with IF=100 and alpha=0.4: similar "
        "clients M, local steps T, distillation steps J, and the heterogeneity alpha.",
        "sensitivity",
        (
            *(
                _point(label, x, **{field: x * factor})
                for label, (field, values, factor) in _SWEEPS.items()
                for x in values
            ),
            *(_point("Dirichlet α", alpha, alpha) for alpha in (0.1, 0.2, 0.4, 0.7, 1.0)),
        ),
        chosen=(
            "Swept values: M 1, 3, 5, 10, 15; T 5, 10, 20, 40; J 25, 50, 100, 200; alpha 0.1, 0.2, "
            "0.4, 0.7, 1.",
        ),
        options={"which": "last"},
        smoke="x=0.1,0.4,10",
    ),
)

PAPER = Paper(
    key="fedlc_lt",
    about="FedLC-LT (the paper calls its method FedLC) learns from long-tailed data that is spread "
    "unevenly. On clients, the average logits of each class are pulled towards those of similar "
    "clients, and classes are weighted by the ratio of the two. The server distils an ensemble of "
    "the client models into the global one, on a small balanced auxiliary set, with learnt "
    "weights for clients and classes.",
    recipe=_RECIPE,
    reported="last",
    cpu=_cpu,
    short=_short,
    figures=_FIGURES,
    notes=(
        Note(
            C,
            "The repository that the paper names is an unchanged copy of FEDIC's, without the "
            "method.",
        ),
        Note(H, "Hyper-parameters of the other baselines: their own papers' defaults."),
        Note(
            H,
            "The server's optimiser: SGD, 0.1 for the model as on the clients, 0.01 for r, a and "
            "b.",
        ),
        Note(
            H,
            "FedBN: the global test accuracy is that of the averaged model with averaged "
            "statistics.",
        ),
        Note(H, "ResNet-18: the stem for small images, also at 224 pixels.", ("table2",)),
    ),
)
get_config = PAPER.get_config
