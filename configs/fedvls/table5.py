r"""FedVLS Table 5. Ablation of FedVLS's two terms at Dirichlet beta=0.05.

With a column on MNIST, which the paper does not have: it runs in minutes without an accelerator.
The whole table, and one cell of it::

    python -m experiments.reproduce --table=fedvls/table5 --workdir=runs/fedvls_table5
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/table5.py:l_dis=1,l_logit=0,dataset=cifar10
"""

import ml_collections

from configs import tables
from configs.fedvls import recipe

TABLE = "fedvls/table5"


def runs() -> list[tables.Run]:
    mnist = tables.another_column(TABLE, "cifar10", dataset="mnist", model="dnn3")
    return tables.runs(TABLE, recipe.config, beyond=mnist)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
