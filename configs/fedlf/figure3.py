r"""FedLF Figure 3. Effect of the weights lambda (of the class-centre loss) and gamma (of the
decorrelation loss) on FedLF.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedlf/figure3 --workdir=runs/fedlf_figure3
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlf/figure3.py:lam=0.01,gamma=0.01

Chosen here, because the paper does not say:

- Data: CIFAR-10-LT with IF=10 and alpha=0.5, as in Figure 2.
- Swept values: 0.0001, 0.001, 0.01, 0.1 and 1; the other weight is 0.01.
"""

import ml_collections

from configs import figures, tables
from configs.fedlf import recipe

FIGURE = figures.Figure(
    name="fedlf/figure3",
    about=__doc__,
    kind="sensitivity",
    shown=tuple(
        figures.show(
            "fedlf",
            "cifar10_lt",
            "resnet8",
            "longtail(if=10)+dirichlet(alpha=0.5)",
            panel=panel,
            x=x,
            fields={"hparams.fedlf.lam": 0.01, "hparams.fedlf.gamma": 0.01, field: x},
        )
        for panel, field in (
            ("weight λ of the class centres", "hparams.fedlf.lam"),
            ("weight γ of the decorrelation", "hparams.fedlf.gamma"),
        )
        for x in (0.0001, 0.001, 0.01, 0.1, 1.0)
    ),
    recipe=recipe.config,
    options={"which": recipe.REPORTED, "log": True},
    smoke="x=0.0001,0.01,1",
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
