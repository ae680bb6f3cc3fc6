r"""FedLC Table 6. Number of clients.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc/table6 --workdir=runs/fedlc_table6
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/table6.py:method=fedlc,num_clients=30
"""

import ml_collections

from configs import tables
from configs.fedlc import recipe

TABLE = "fedlc/table6"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, recipe.config)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
