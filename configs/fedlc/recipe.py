"""How FedLC (Zhang et al., ICML 2022) ran its experiments, as far as the paper says."""

import ml_collections

from configs import scale, tables
from fedjax_skew.report.reference import Row

REPORTED = "last"
UNSTATED = (
    "Participation: all clients in every round.",
    "Local epochs outside Table 5: 1 for Tables 1, 6 and 7, and 5 for Tables 2, 3 and 4. The "
    "paper's own numbers suggest it: FedAvg of Table 1 (60.18 at beta=0.5) is near Table 5 at E=1 "
    "(54.25) and far from E=5 (77.02), whereas Table 2 brackets Table 5 at E=5.",
    "Momentum, learning rate schedule: none.",
    "Augmentation: crop and flip on CIFAR, as in the first author's code for FedAvg under the same "
    "skews.",
    "SCAFFOLD on images: gradients are clipped at norm 10, without which it diverges.",
    "Image model outside the ImageNet subset: the two-convolution CNN of FedAvg; Synthetic: "
    "logistic regression.",
    "Rounds of the ImageNet subset and of Tables 5 to 7: 400.",
    "tau: 1. A class that a client lacks drops out of its softmax (the limit of the formula).",
    "Hyper-parameters of the baselines: their own papers' defaults.",
    "Dirichlet with the usual balance rule: a client that holds its fair share gets no more.",
    "Synthetic: FedProx's generator, without a further label skew; the data is drawn once, seeds "
    "differ in the initial model and the batches. FEMNIST: 100 writers drawn at random.",
    "Table 5: 10 clients, as its caption says (the text says 20).",
    "Table 6: CIFAR-10 under dirichlet(beta=0.1), one of four settings its numbers allow.",
)


def config(row: Row, *, local_epochs: int = 1) -> ml_collections.ConfigDict:
    """The configuration of one printed number.

    Args:
        row: the number.
        local_epochs: of tables that do not vary it.
    """
    config = tables.start(row)
    many = row.dataset in ("synthetic", "femnist")
    if row.dataset == "unstated":
        config.dataset.name, config.partition = "cifar10", "dirichlet(beta=0.1)"
    if row.model == "unstated":
        config.model = "logistic" if row.dataset == "synthetic" else "fedavg_cnn"
    config.num_clients = int(row.extras.get("num_clients", 100 if many else 20))
    config.rounds = 300 if many else 400
    config.local_epochs = int(row.extras.get("local_epochs", local_epochs))
    config.batch_size = 128
    config.client_lr = 0.01
    if config.dataset.name in ("cifar10", "cifar100"):
        config.augment = "crop_flip"
    if "scaffold" in config.method.split("+") and config.model != "logistic":
        config.clip_norm = 10.0
    config.num_seeds = 5
    config.eval_every = 10
    return config


def shrink(config: ml_collections.ConfigDict) -> None:
    """Fits a configuration to two cores: a small network and 400 local epochs in all."""
    if config.model != "logistic":
        scale.use_model(config, "simple_cnn")
        config.rounds = config.rounds // config.local_epochs
        config.num_seeds = 2


def measured(row: Row) -> tuple[str, str]:
    """Which column answers a printed number, and which of its values."""
    return tables.column(row), REPORTED
