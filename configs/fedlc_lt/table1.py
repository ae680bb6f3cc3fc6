r"""FedLC-LT Table I. Long-tailed EMNIST, CIFAR-10 and CIFAR-100 by imbalance factor.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc_lt/table1 --workdir=runs/fedlc_lt_table1
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc_lt/table1.py:method=fedlc_lt,dataset=cifar10,if=100
"""

import ml_collections

from configs import tables
from configs.fedlc_lt import recipe

TABLE = "fedlc_lt/table1"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
