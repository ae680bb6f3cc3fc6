r"""FedLC-LT Table II. Long-tailed mini-ImageNet by imbalance factor and Dirichlet alpha.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc_lt/table2 --workdir=runs/fedlc_lt_table2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc_lt/table2.py:method=fedlc_lt,if=100,alpha=0.2
"""

import ml_collections

from configs import tables
from configs.fedlc_lt import recipe

TABLE = "fedlc_lt/table2"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
