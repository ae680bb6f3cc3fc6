r"""FedVLS Figure 3. Test accuracy over rounds on CIFAR-10 and CIFAR-100 under Dirichlet label skew
(beta 0.1 and 0.05): FedVLS and six other methods.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedvls/figure3 --workdir=runs/fedvls_figure3
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/figure3.py:method=fedvls,dataset=cifar10,beta=0.05

Chosen here, because the paper does not say:

- The six methods: FedAvg, FedProx, FedLC, FedRS, FedSAM and FedNTD. The runs are those of Table
  1.
"""

import ml_collections

from configs import figures, tables
from configs.fedvls import recipe

METHODS = ("fedavg", "fedprox", "fedlc", "fedrs", "fedsam", "fedntd", "fedvls")

FIGURE = figures.Figure(
    name="fedvls/figure3",
    about=__doc__,
    kind="curves",
    shown=tuple(
        figures.show(
            method,
            dataset,
            "mobilenet_v2",
            f"dirichlet(beta={beta})",
            panel=f"{{dataset}}, β = {beta}",
        )
        for dataset in ("cifar10", "cifar100")
        for beta in (0.1, 0.05)
        for method in METHODS
    ),
    recipe=recipe.config,
    smoke="dataset=cifar10,method=fedavg,fedlc,fedvls",
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
