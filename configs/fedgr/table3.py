r"""FedGR Table 3. Double imbalance on Fashion-MNIST, 2 or 3 labels per client.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedgr/table3 --workdir=runs/fedgr_table3
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedgr/table3.py:method=fedgr,labels=2
"""

import ml_collections

from configs import tables
from configs.fedgr import recipe

TABLE = "fedgr/table3"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
