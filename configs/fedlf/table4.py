r"""FedLF Table 4. Long-tailed CIFAR-10 at Dirichlet alpha=0.1, by class group.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlf/table4 --workdir=runs/fedlf_table4
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlf/table4.py:method=fedlf
"""

import ml_collections

from configs import tables
from configs.fedlf import recipe

TABLE = "fedlf/table4"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
