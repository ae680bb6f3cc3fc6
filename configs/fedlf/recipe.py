"""How FedLF (ACML 2024) ran its experiments, as far as the paper says."""

import re

import ml_collections

from configs import scale, tables
from fedjax_skew.report.reference import Row

REPORTED = "last"
UNSTATED = (
    "Rounds: 200, from the caption of its Figure 2. E = 5 counts local epochs.",
    "Optimiser: SGD without momentum and weight decay; augmentation: crop and flip; both as in "
    "the published code.",
    "Seeds: 3 (the printed group accuracies are those of one run). Reported: the last round.",
    "L_C and L_D: as in the published code, not as printed (`fedjax_skew/methods/fedlf.py` lists "
    "the differences).",
    "Table 3: CIFAR-10-LT, whose row of Table 1 it repeats. Table 4: its IF=0.1 is IF=10.",
    "Hyper-parameters of the baselines: their own papers' defaults; FedRS with the soft scale and "
    "alpha 0.25, focal loss with alpha 0.25 and gamma 2, as in the published code.",
    "FEDIC keeps 2 % of the training data on the server, labelled, and distils on the images of "
    "the other CIFAR set, so its clients divide the other 98 %; all other rows share a partition.",
    "Partition: as in the published code, Dirichlet shares inside blocks of ten clients, then "
    "equal sizes (`grouped_dirichlet`).",
    "FedBN: the global test accuracy is that of the averaged model with averaged statistics.",
)
_THRESHOLDS = {  # class sizes (upper, lower) by data set and imbalance factor
    "cifar10": {100: (1500, 200), 50: (1500, 200), 10: (1500, 600)},
    "cifar100": {100: (200, 20), 50: (200, 20), 10: (300, 60)},
}
_OTHER = {"cifar10": "cifar100", "cifar100": "cifar10"}


def config(row: Row) -> ml_collections.ConfigDict:
    """The configuration of one printed number."""
    config = tables.start(row)
    config.partition = row.partition.replace("if=0.1)", "if=10)").replace(
        "dirichlet(", "grouped_dirichlet("
    )
    factor = int(re.search(r"if=(\d+)", config.partition)[1])
    config.num_clients = 20
    config.participation = 0.4
    config.rounds = 200
    config.local_epochs = 5
    config.batch_size = 32
    config.client_lr = 0.1
    config.augment = "crop_flip"
    config.num_seeds = 3
    config.eval_every = 5
    config.group_thresholds = _THRESHOLDS[config.dataset.name][factor]
    if row.method == "fedic":
        config.server_data.labelled = 0.02
        config.server_data.unlabelled_dataset = _OTHER[config.dataset.name]
    if row.method == "fedrs":
        tables.set_hparams(config, fedrs={"alpha": 0.25, "form": "code"})
    if row.method == "fedlf":
        lam = 0.0 if row.extras.get("l_c") == "0" else 0.01
        gamma = 0.0 if row.extras.get("l_d") == "0" else 0.01
        own = {"lam": lam, "gamma": gamma, "alpha": 0.25, "tau": 100.0}
        tables.set_hparams(config, fedlf=own)
    return config


def shrink(config: ml_collections.ConfigDict) -> None:
    """Fits a configuration to two cores: a small network."""
    scale.use_model(config, "simple_cnn")
    config.num_seeds = 2


def measured(row: Row) -> tuple[str, str]:
    """Which column answers a printed number, and which of its values."""
    return tables.column(row), REPORTED
