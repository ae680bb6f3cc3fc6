r"""FedLF Table 3. Ablation of FedLF's centre loss and decorrelation at Dirichlet alpha=0.5.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlf/table3 --workdir=runs/fedlf_table3
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlf/table3.py:l_c=1,l_d=0,if=50
"""

import ml_collections

from configs import tables
from configs.fedlf import recipe

TABLE = "fedlf/table3"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
