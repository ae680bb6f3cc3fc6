r"""FedGR Figure 4. Effect of the weight lambda of the gravitation regulariser on FedGR: CIFAR-10
and Fashion-MNIST with two and three labels a client.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedgr/figure4 --workdir=runs/fedgr_figure4
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedgr/figure4.py:dataset=cifar10,labels=2,lam=0.5

Chosen here, because the paper does not say:

- Swept values: 0.1, 0.3, 0.5, 0.7 and 0.9. Everything else as in Tables 2 and 3.
"""

import ml_collections

from configs import figures, tables
from configs.fedgr import recipe

FIGURE = figures.Figure(
    name="fedgr/figure4",
    about=__doc__,
    kind="sensitivity",
    shown=tuple(
        figures.show(
            "fedgr",
            dataset,
            "tfcnn",
            f"double(labels={labels})",
            series=f"{labels} labels a client",
            panel="{dataset}: weight λ",
            x=lam,
            fields={"hparams.fedgr.lam": lam},
        )
        for dataset in ("cifar10", "fashion_mnist")
        for labels in (2, 3)
        for lam in (0.1, 0.3, 0.5, 0.7, 0.9)
    ),
    recipe=recipe.config,
    options={"which": recipe.REPORTED},
    smoke="dataset=cifar10,lam=0.1,0.5,0.9",
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
