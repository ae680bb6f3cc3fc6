r"""FedLC-LT Table III. Ablation of FedLC-LT's four parts on long-tailed CIFAR-10.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc_lt/table3 --workdir=runs/fedlc_lt_table3
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc_lt/table3.py:l_local=1,delta_ciw=0,delta_cq=0
"""

import ml_collections

from configs import tables
from configs.fedlc_lt import recipe

TABLE = "fedlc_lt/table3"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
