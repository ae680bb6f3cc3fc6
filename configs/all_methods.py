"""Problems on which every method trains within minutes: ``configs/all_methods.py:mnist``.

``mnist`` and ``fashion_mnist`` use an MLP, 10 clients and Dirichlet(0.1). ``cifar10_lt`` uses a
network of two convolutions on long-tailed CIFAR-10 (imbalance factor 100) with the partition of
FedLF and 8 of 20 clients per round. The server keeps 2 % of the training set with labels and 2 %
without, so that the clients of all methods have the same data. All problems need prepared data:
``--config.dataset.data_dir=DIR``.
"""

import ml_collections

from fedjax_skew import errors
from fedjax_skew.config import default_config

PROBLEMS = ("mnist", "fashion_mnist", "cifar10_lt")


def get_config(arg: str = "mnist") -> ml_collections.ConfigDict:
    if arg not in PROBLEMS:
        raise errors.unknown("config argument", arg, PROBLEMS)
    config = default_config()
    config.dataset.name = arg.removesuffix("_lt")
    config.client_lr, config.momentum, config.weight_decay = 0.01, 0.9, 1e-5
    config.server_data.labelled = config.server_data.unlabelled = 0.02
    config.hparams.pfedme.inner_lr = 0.01  # pFedMe's value for deep networks; 0.09 diverges.
    if arg == "cifar10_lt":
        config.model, config.augment = "simple_cnn", "crop_flip"
        config.partition = "longtail(if=100)+grouped_dirichlet(alpha=0.5)"
        config.num_clients, config.participation = 20, 0.4
        config.rounds, config.local_epochs, config.batch_size = 20, 5, 32
        config.client_lr, config.momentum, config.weight_decay = 0.1, 0.0, 0.0  # FedLF's recipe
        config.eval_every = 5
    else:
        config.model, config.partition, config.num_clients = "mlp", "dirichlet(beta=0.1)", 10
        config.rounds, config.eval_every = (10, 2) if arg == "mnist" else (5, 1)
    return config
