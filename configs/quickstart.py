"""Logistic regression on Synthetic(1,1) with 100 clients; needs no download.

This is the recipe of FedLC's Table 4 (300 rounds, B=128, SGD 0.01) with fewer rounds. It is the
default of ``--config``.
"""

import ml_collections

from configs.common import finish
from fedjax_skew.config import default_config


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    config = default_config()
    config.rounds = 50
    config.batch_size = 128
    config.local_epochs = 5
    config.num_seeds = 3
    config.eval_every = 5
    config.figures, config.loggers = False, ""
    # A class that a client lacks counts as one sample. FedLC's paper does not say how it treats
    # such classes, and leaving them out of the softmax (0) fails on this data.
    config.hparams.fedlc.min_count = 1.0
    return finish(config, arg)
