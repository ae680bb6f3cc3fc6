r"""FedGR Table 2. Double imbalance on CIFAR-10 (2, 3 labels per client) and CIFAR-100 (20, 30).

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedgr/table2 --workdir=runs/fedgr_table2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedgr/table2.py:method=fedgr,dataset=cifar10,labels=2
"""

import ml_collections

from configs import tables
from configs.fedgr import recipe

TABLE = "fedgr/table2"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
