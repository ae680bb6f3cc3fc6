r"""FedLC Figure 6. Average test accuracy per class of the clients' models before aggregation, and
of the averaged model after it: FedAvg against FedLC from the same well-trained model, one local
epoch.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedlc/figure6 --workdir=runs/fedlc_figure6
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/figure6.py

Chosen here, because the paper does not say:

- Data: CIFAR-10 under dirichlet(beta=0.1) with 20 clients, as in Table 1.
- The well-trained model: FedAvg's after all rounds of Table 1.
"""

import ml_collections

from configs import figures, tables
from configs.fedlc import recipe

FIGURE = figures.Figure(
    name="fedlc/figure6",
    about=__doc__,
    kind="aggregation",
    shown=(figures.show("fedavg", "cifar10", "unstated", "dirichlet(beta=0.1)"),),
    recipe=recipe.config,
    options={"methods": ("fedavg", "fedlc"), "local_epochs": 1},
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
