"""MNIST with an MLP 784-200-200-10, 10 clients and Dirichlet(0.05).

This is the most skewed MNIST column of FedVLS with fewer rounds and epochs. It needs prepared data:
``--config.dataset.data_dir=DIR``.
"""

import ml_collections

from configs.common import finish
from fedjax_skew.config import default_config


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    config = default_config()
    config.dataset.name = "mnist"
    config.model = "mlp"
    config.partition = "dirichlet(beta=0.05)"
    config.num_clients = 10
    config.rounds = 20
    config.local_epochs = 1
    config.batch_size = 64
    config.client_lr = 0.01
    config.momentum = 0.9
    config.weight_decay = 1e-5
    config.hparams.fedconcat.encoder_rounds = 10  # Half of the rounds.
    return finish(config, arg)
