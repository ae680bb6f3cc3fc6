r"""FedVLS Figure 4. Test accuracy over rounds on CIFAR-10 (beta=0.05) by participation rate R,
local epochs E and number of clients N: FedVLS and six other methods.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedvls/figure4 --workdir=runs/fedvls_figure4
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/figure4.py:method=fedvls,participation=0.5

Chosen here, because the paper does not say:

- The methods are those of Figure 3.
"""

import ml_collections

from configs import figures, tables
from configs.fedvls import recipe
from configs.fedvls.figure3 import METHODS

_PANELS = {
    "R = 0.5": {"participation": 0.5},
    "R = 1": {"participation": 1.0},
    "E = 10": {"local_epochs": 10},
    "E = 20": {"local_epochs": 20},
    "N = 10": {"num_clients": 10},
    "N = 30": {"num_clients": 30},
}

FIGURE = figures.Figure(
    name="fedvls/figure4",
    about=__doc__,
    kind="curves",
    shown=tuple(
        figures.show(
            method, "cifar10", "mobilenet_v2", "dirichlet(beta=0.05)", panel=panel, fields=fields
        )
        for panel, fields in _PANELS.items()
        for method in METHODS
    ),
    recipe=recipe.config,
    smoke="method=fedavg,fedvls,participation=0.5,1",
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
