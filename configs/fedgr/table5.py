r"""FedGR Table 5. Ablation of FedGR's two parts at 3 labels per client.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedgr/table5 --workdir=runs/fedgr_table5
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedgr/table5.py:dataset=fashion_mnist,gravitation_regularizer=0
"""

import ml_collections

from configs import tables
from configs.fedgr import recipe

TABLE = "fedgr/table5"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
