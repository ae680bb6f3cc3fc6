r"""FedLC Table 1. Dirichlet label skew on SVHN, CIFAR-10 and CIFAR-100.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc/table1 --workdir=runs/fedlc_table1
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/table1.py:method=fedlc,dataset=cifar10,beta=0.1
"""

import ml_collections

from configs import tables
from configs.fedlc import recipe

TABLE = "fedlc/table1"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
