r"""FedVLS Table 2. Shards of sorted labels on CIFAR-10, CIFAR-100 and TinyImageNet.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedvls/table2 --workdir=runs/fedvls_table2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/table2.py:method=fedvls,dataset=cifar10
"""

import ml_collections

from configs import tables
from configs.fedvls import recipe

TABLE = "fedvls/table2"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
