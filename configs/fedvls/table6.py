r"""FedVLS Table 6. FedVLS combined with other methods at Dirichlet beta=0.05.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedvls/table6 --workdir=runs/fedvls_table6
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/table6.py:method=fedexp+fedvls,dataset=cifar10
"""

import ml_collections

from configs import tables
from configs.fedvls import recipe

TABLE = "fedvls/table6"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
