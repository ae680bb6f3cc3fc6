r"""FedLC Table 7. FedLC combined with SCAFFOLD and FedProx.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc/table7 --workdir=runs/fedlc_table7
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/table7.py:method=fedlc+scaffold,dataset=cifar10,beta=0.3
"""

import ml_collections

from configs import tables
from configs.fedlc import recipe

TABLE = "fedlc/table7"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
