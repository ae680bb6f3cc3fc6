r"""FedLC Figure 4. Samples of each class and client: CIFAR-10 on five clients, quantity-based
(alpha=4) and Dirichlet (beta=0.5) label skew.

The figure::

    python -m experiments.reproduce --figure=fedlc/figure4 --workdir=runs/fedlc_figure4

Chosen here, because the paper does not say:

- The draw of seed 0; nothing is trained.
"""

import ml_collections

from configs import figures, tables
from configs.fedlc import recipe

_PANELS = {
    "quantity(alpha=4)": "quantity-based, α = 4",
    "dirichlet(beta=0.5)": "distribution-based, β = 0.5",
}

FIGURE = figures.Figure(
    name="fedlc/figure4",
    about=__doc__,
    kind="partitions",
    shown=tuple(
        figures.show(
            "fedavg", "cifar10", "unstated", partition, panel=title, fields={"num_clients": 5}
        )
        for partition, title in _PANELS.items()
    ),
    recipe=recipe.config,
    options={"columns": 2},
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
