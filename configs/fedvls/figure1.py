r"""FedVLS Figure 1. Test accuracy per class of the initial global model and of the updated local
model of one client on CIFAR-10: (a) IID data, (b-d) skewed data with FedAvg, FedLC and FedVLS;
in the titles the accuracy of the aggregated model.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedvls/figure1 --workdir=runs/fedvls_figure1
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/figure1.py:method=fedvls

Chosen here, because the paper does not say:

- The skewed partition is the one the appendix prints, in figure1.csv; client 0 is the one with
  the vacant classes 0, 1, 2, 4, 6 and 7 of the text.
- The initial model: each method's own after the rounds of Table 1; one seed is trained.
"""

import ml_collections

from configs import figures, tables
from configs.fedvls import recipe

_COUNTS = "counts(path=configs/fedvls/figure1.csv)"
_PANELS = (
    ("fedavg", "iid", "(a) IID, FedAvg"),
    ("fedavg", _COUNTS, "(b) skewed, FedAvg"),
    ("fedlc", _COUNTS, "(c) skewed, FedLC"),
    ("fedvls", _COUNTS, "(d) skewed, FedVLS"),
)

FIGURE = figures.Figure(
    name="fedvls/figure1",
    about=__doc__,
    kind="local_update",
    shown=tuple(
        figures.show(
            method, "cifar10", "mobilenet_v2", partition, panel=title, fields={"num_seeds": 1}
        )
        for method, partition, title in _PANELS
    ),
    recipe=recipe.config,
    options={"clients": (0,)},
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
