r"""FedLF Table 2. Long-tailed CIFAR-10 and CIFAR-100 at Dirichlet alpha=1.0, by class group.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlf/table2 --workdir=runs/fedlf_table2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlf/table2.py:method=fedlf,dataset=cifar10,if=100
"""

import ml_collections

from configs import tables
from configs.fedlf import recipe

TABLE = "fedlf/table2"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
