r"""FedLF Figure 2. (1) Test accuracy over rounds on CIFAR-10-LT with IF=10 and alpha=0.5, and (2)
t-SNE of the features of test samples after all rounds.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedlf/figure2 --workdir=runs/fedlf_figure2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlf/figure2.py:method=fedlf

Chosen here, because the paper does not say:

- Methods: those of Table 1, whose runs these are; the features of FedAvg and FedLF are shown, 60
  test samples a class.
"""

import ml_collections

from configs import figures, tables
from configs.fedlf import recipe

_METHODS = ("fedavg", "fedprox", "fedbn", "fedrs", "focal", "creff", "fedic", "fedlf")

FIGURE = figures.Figure(
    name="fedlf/figure2",
    about=__doc__,
    kind="curves_and_tsne",
    shown=tuple(
        figures.show(
            method,
            "cifar10_lt",
            "resnet8",
            "longtail(if=10)+dirichlet(alpha=0.5)",
            panel="{dataset}-LT, IF = 10, α = 0.5",
        )
        for method in _METHODS
    ),
    recipe=recipe.config,
    options={"features_of": ("fedavg", "fedlf")},
    smoke="method=fedavg,fedrs,focal,fedlf",
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
