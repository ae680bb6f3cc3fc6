r"""FedGR Figure 2. Test accuracy of existing methods on CIFAR-10 under label imbalance, quantity
imbalance and double imbalance, on the ten clients of Figure 1.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedgr/figure2 --workdir=runs/fedgr_figure2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedgr/figure2.py:method=fedavg,partition=double(labels=3)

Chosen here, because the paper does not say:

- Methods: the baselines of Table 2.
- All ten clients take part in each of 200 rounds.
"""

import ml_collections

from configs import figures, tables
from configs.fedgr import recipe
from configs.fedgr.figure1 import IMBALANCES

_METHODS = (
    "fedavg",
    "fedprox",
    "scaffold",
    "fednova",
    "perfedavg",
    "pfedme",
    "fedopt",
    "moon",
    "fedrs",
    "fedgc",
)

FIGURE = figures.Figure(
    name="fedgr/figure2",
    about=__doc__,
    kind="accuracy_bars",
    shown=tuple(
        figures.show(
            method,
            "cifar10",
            "tfcnn",
            partition,
            panel=title,
            fields={"num_clients": 10, "participation": 1.0, "rounds": 200},
        )
        for partition, title in IMBALANCES.items()
        for method in _METHODS
    ),
    recipe=recipe.config,
    options={"which": recipe.REPORTED, "xlabel": "distribution of the data"},
    smoke="method=fedavg,fedprox,fedrs",
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
