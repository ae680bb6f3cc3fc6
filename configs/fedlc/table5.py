r"""FedLC Table 5. Number of local epochs E on CIFAR-10 and SVHN.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc/table5 --workdir=runs/fedlc_table5
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/table5.py:method=fedlc,dataset=cifar10,beta=0.5,local_epochs=1
"""

import ml_collections

from configs import tables
from configs.fedlc import recipe

TABLE = "fedlc/table5"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
