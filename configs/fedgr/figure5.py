r"""FedGR Figure 5. t-SNE of the features of CIFAR-10 test samples: FedAvg and FedGR.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedgr/figure5 --workdir=runs/fedgr_figure5
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedgr/figure5.py:method=fedgr

Chosen here, because the paper does not say:

- Three labels a client; the runs are those of Table 2. 60 test samples a class.
"""

import ml_collections

from configs import figures, tables
from configs.fedgr import recipe

FIGURE = figures.Figure(
    name="fedgr/figure5",
    about=__doc__,
    kind="tsne",
    shown=tuple(
        figures.show(method, "cifar10", "tfcnn", "double(labels=3)")
        for method in ("fedavg", "fedgr")
    ),
    recipe=recipe.config,
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
