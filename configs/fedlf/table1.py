r"""FedLF Table 1. Long-tailed CIFAR-10 and CIFAR-100 at Dirichlet alpha=0.5, by class group.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlf/table1 --workdir=runs/fedlf_table1
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlf/table1.py:method=fedlf,dataset=cifar10,if=100
"""

import ml_collections

from configs import tables
from configs.fedlf import recipe

TABLE = "fedlf/table1"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
