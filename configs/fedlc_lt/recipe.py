"""How FedLC-LT (logit calibration for long-tailed data) ran its experiments."""

import ml_collections

from configs import scale, tables
from fedjax_skew.report.reference import Row

REPORTED = "last"
UNSTATED = (
    "Momentum, weight decay, learning rate schedule, augmentation: none.",
    "T = 10 counts local steps (the analysis also calls them epochs).",
    "Table I: alpha = 0.4, the paper's default.",
    "The auxiliary 5 % are taken out before the long tail is cut, for every method, so that all "
    "rows share one partition; only FedLC-LT uses their labels, FedDF and FedBE use the images, "
    "the others leave them alone.",
    "The repository named in the paper holds no code of the method (it is FEDIC's, unchanged).",
    "Hyper-parameters of the baselines: their own papers' defaults.",
    "SCAFFOLD: gradients are clipped at norm 10, without which it diverges.",
    "FedGen: both weights 1 instead of 10, because they belong to its paper's learning rate of "
    "0.01; with 10 and 0.1 it diverges.",
    "The server's optimiser: SGD, 0.1 for the model as on the clients, 0.01 for r, a and b.",
    "Partition: that of CReFF's published code, Dirichlet shares inside blocks of ten clients, "
    "then equal sizes (`grouped_dirichlet`).",
    "FedBN: the global test accuracy is that of the averaged model with averaged statistics.",
    "ResNet-18: the stem for small images, also at 224 pixels.",
)
_SWITCHES = ("l_local", "l_global", "delta_ciw", "delta_cq")


def config(row: Row) -> ml_collections.ConfigDict:
    """The configuration of one printed number."""
    config = tables.start(row)
    config.partition = row.partition.replace("dirichlet(", "grouped_dirichlet(")
    config.num_clients = 20
    config.participation = 0.4
    config.rounds = 200
    config.local_epochs, config.local_steps = 0, 10
    config.batch_size = 64
    config.client_lr = 0.1
    if row.method == "scaffold":
        config.clip_norm = 10.0
    config.num_seeds = 3
    config.eval_every = 5
    config.server_data.labelled = 0.05
    config.server_data.unlabelled_dataset = "labelled"
    if config.dataset.name == "mini_imagenet":
        config.dataset.image_size = 224
    switches = {name: row.extras[name] == "1" for name in _SWITCHES if name in row.extras}
    if switches and not any(switches.values()):
        config.method = "fedavg"  # What is left when all four are off.
    elif row.method == "fedlc_lt":
        tables.set_hparams(
            config,
            fedlc_lt={
                "neighbors": 0.25,
                "temperature": 4.0,
                "lam": 0.001,
                "steps": 100,
                "l_local": switches.get("l_local", True),
                "l_global": switches.get("l_global", True),
                "class_importance": switches.get("delta_ciw", True),
                "class_query": switches.get("delta_cq", True),
            },
        )
    elif row.method == "fedgen":
        tables.set_hparams(config, fedgen={"alpha": 1.0, "beta": 1.0})
    return config


def shrink(config: ml_collections.ConfigDict) -> None:
    """Fits a configuration to two cores: a ResNet-8 of width 16."""
    scale.use_model(config, "resnet8_w16")
    config.num_seeds = 2


def measured(row: Row) -> tuple[str, str]:
    """Which column answers a printed number, and which of its values."""
    return tables.column(row), REPORTED
