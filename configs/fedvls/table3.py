r"""FedVLS Table 3. Backbones on CIFAR-10 with Dirichlet label skew.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedvls/table3 --workdir=runs/fedvls_table3
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/table3.py:method=fedvls,model=resnet18,beta=0.05
"""

import ml_collections

from configs import tables
from configs.fedvls import recipe

TABLE = "fedvls/table3"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
