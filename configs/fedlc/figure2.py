r"""FedLC Figure 2. Test accuracy per class before and after the local update of five clients on
skewed CIFAR-10, with the training samples of each class.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedlc/figure2 --workdir=runs/fedlc_figure2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/figure2.py

Chosen here, because the paper does not say:

- Partition: Dirichlet(0.3) over five clients.
- Method: FedAvg after 400 rounds, as in the text; local epochs: 1, as in Table 1.
- The first seed is shown; one is trained.
"""

import ml_collections

from configs import figures, tables
from configs.fedlc import recipe

FIGURE = figures.Figure(
    name="fedlc/figure2",
    about=__doc__,
    kind="local_update",
    shown=(
        figures.show(
            "fedavg",
            "cifar10",
            "unstated",
            "dirichlet(beta=0.3)",
            fields={"num_clients": 5, "num_seeds": 1},
        ),
    ),
    recipe=recipe.config,
    options={"clients": range(5)},
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
