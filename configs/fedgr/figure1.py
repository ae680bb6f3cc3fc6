r"""FedGR Figure 1. Samples of each class and client: CIFAR-10 on ten clients under (a) label
imbalance, (b) quantity imbalance and (c) double imbalance.

The figure::

    python -m experiments.reproduce --figure=fedgr/figure1 --workdir=runs/fedgr_figure1

Chosen here, because the paper does not say:

- (a) three labels a client, which share each label equally; (b) all labels, shared by the power
  law; (c) three labels, shared by the power law.
- The draw of seed 0; nothing is trained.
"""

import ml_collections

from configs import figures, tables
from configs.fedgr import recipe

IMBALANCES = {
    "double(labels=3,power=0)": "label imbalance",
    "double(labels=10)": "quantity imbalance",
    "double(labels=3)": "double imbalance",
}

FIGURE = figures.Figure(
    name="fedgr/figure1",
    about=__doc__,
    kind="partitions",
    shown=tuple(
        figures.show(
            "fedavg",
            "cifar10",
            "tfcnn",
            partition,
            panel=f"({letter}) {title}",
            fields={"num_clients": 10, "participation": 1.0},
        )
        for letter, (partition, title) in zip("abc", IMBALANCES.items(), strict=True)
    ),
    recipe=recipe.config,
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
