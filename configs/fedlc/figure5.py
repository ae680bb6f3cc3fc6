r"""FedLC Figure 5. Test accuracy over rounds on the 12-class ImageNet subset with 40 clients: FedLC
against FedRS, the best baseline.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedlc/figure5 --workdir=runs/fedlc_figure5
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc/figure5.py:method=fedlc,alpha=2

Chosen here, because the paper does not say:

- Skews: the four of Table 3 (alpha 2 and 4, beta 0.1 and 0.3); rounds: 400.
"""

import ml_collections

from configs import figures, tables
from configs.fedlc import recipe

_PANELS = {
    "quantity(alpha=2)": "α = 2",
    "quantity(alpha=4)": "α = 4",
    "dirichlet(beta=0.1)": "β = 0.1",
    "dirichlet(beta=0.3)": "β = 0.3",
}

FIGURE = figures.Figure(
    name="fedlc/figure5",
    about=__doc__,
    kind="curves",
    shown=tuple(
        figures.show(
            method,
            "imagenet_subset12",
            "resnet18",
            partition,
            panel=f"{{dataset}}, {skew}",
            fields={"num_clients": 40},
        )
        for partition, skew in _PANELS.items()
        for method in ("fedrs", "fedlc")
    ),
    recipe=recipe.config,
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
