r"""FedLC Table 3. Label skew on a 12-class subset of ImageNet at 64x64.

The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedlc/table3 --workdir=runs/fedlc_table3
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/table3.py:method=fedlc,beta=0.1
"""

import functools

import ml_collections

from configs import tables
from configs.fedlc import recipe

TABLE = "fedlc/table3"


def runs() -> list[tables.Run]:
    return tables.runs(TABLE, functools.partial(recipe.config, local_epochs=5))


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
