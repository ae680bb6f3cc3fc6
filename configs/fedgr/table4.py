r"""FedGR Table 4. Rounds to reach FedAvg's accuracy at round 1000.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedgr/table4 --workdir=runs/fedgr_table4
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedgr/table4.py:method=fedgr,dataset=fashion_mnist
"""

import ml_collections

from configs import tables
from configs.fedgr import recipe

TABLE = "fedgr/table4"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
