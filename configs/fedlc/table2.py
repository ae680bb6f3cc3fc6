r"""FedLC Table 2. Quantity-based label skew on CIFAR-10 and CIFAR-100.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc/table2 --workdir=runs/fedlc_table2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/table2.py:method=fedlc,dataset=cifar10,alpha=2
"""

import functools

import ml_collections

from configs import tables
from configs.fedlc import recipe

TABLE = "fedlc/table2"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, functools.partial(recipe.config, local_epochs=5))


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
