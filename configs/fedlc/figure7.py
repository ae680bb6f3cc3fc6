r"""FedLC Figure 7. t-SNE of the features of test samples of a missing, a minority and a majority
class after the local update: FedAvg against FedLC.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedlc/figure7 --workdir=runs/fedlc_figure7
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/figure7.py

Chosen here, because the paper does not say:

- Data, model and update as for Figure 6, with which it shares its run.
- Client and classes: those whose counts are nearest in ratio to the 448 (minority) and 2608
  (majority) of the text; 150 test samples a class.
"""

import ml_collections

from configs import figures, tables
from configs.fedlc import recipe

FIGURE = figures.Figure(
    name="fedlc/figure7",
    about=__doc__,
    kind="local_tsne",
    shown=(figures.show("fedavg", "cifar10", "unstated", "dirichlet(beta=0.1)"),),
    recipe=recipe.config,
    options={"methods": ("fedavg", "fedlc"), "local_epochs": 1, "like": (448, 2608)},
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
