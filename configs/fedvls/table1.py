r"""FedVLS Table 1. Dirichlet label skew on MNIST, CIFAR-10, CIFAR-100 and TinyImageNet.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedvls/table1 --workdir=runs/fedvls_table1
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/table1.py:method=fedvls,dataset=mnist,beta=0.05
"""

import ml_collections

from configs import tables
from configs.fedvls import recipe

TABLE = "fedvls/table1"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
