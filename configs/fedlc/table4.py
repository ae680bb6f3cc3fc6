r"""FedLC Table 4. Synthetic(lambda, mu) and FEMNIST with natural clients.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc/table4 --workdir=runs/fedlc_table4
    python -m experiments.train --workdir=runs/one \
        '--config=configs/fedlc/table4.py:method=fedlc,partition=synthetic(1,1)'
"""

import functools

import ml_collections

from configs import tables
from configs.fedlc import recipe

TABLE = "fedlc/table4"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, functools.partial(recipe.config, local_epochs=5))


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
