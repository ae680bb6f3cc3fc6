r"""FedVLS Table 4. FedVLS by its weight lambda at Dirichlet beta=0.05.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedvls/table4 --workdir=runs/fedvls_table4
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/table4.py:lambda=0.1,dataset=cifar10
"""

import ml_collections

from configs import tables
from configs.fedvls import recipe

TABLE = "fedvls/table4"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
