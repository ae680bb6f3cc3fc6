r"""FedLC-LT Figure 4. Effect of FedLC-LT's hyper-parameters on CIFAR-10 with IF=100 and alpha=0.4:
similar clients M, local steps T, distillation steps J, and the heterogeneity alpha.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedlc_lt/figure4 --workdir=runs/fedlc_lt_figure4
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc_lt/figure4.py:neighbors=0.25,steps=100

Chosen here, because the paper does not say:

- Swept values: M 1, 3, 5, 10, 15; T 5, 10, 20, 40; J 25, 50, 100, 200; alpha 0.1, 0.2, 0.4, 0.7,
  1.
"""

import ml_collections

from configs import figures, tables
from configs.fedlc_lt import recipe

_SWEEPS = {  # by label of the axis: field, values, and their factor in the configuration
    "similar clients M": ("hparams.fedlc_lt.neighbors", (1, 3, 5, 10, 15), 1 / 20),
    "local steps T": ("local_steps", (5, 10, 20, 40), 1),
    "distillation steps J": ("hparams.fedlc_lt.steps", (25, 50, 100, 200), 1),
}


def _show(label: str, x: float, alpha: float = 0.4, **fields: float) -> figures.Shown:
    partition = f"longtail(if=100)+dirichlet(alpha={alpha})"
    return figures.show(
        "fedlc_lt", "cifar10", "resnet8", partition, panel=label, x=x, fields=fields
    )


FIGURE = figures.Figure(
    name="fedlc_lt/figure4",
    about=__doc__,
    kind="sensitivity",
    shown=(
        *(
            _show(label, x, **{field: x * factor})
            for label, (field, values, factor) in _SWEEPS.items()
            for x in values
        ),
        *(_show("Dirichlet α", alpha, alpha) for alpha in (0.1, 0.2, 0.4, 0.7, 1.0)),
    ),
    recipe=recipe.config,
    options={"which": recipe.REPORTED},
    smoke="x=0.1,0.4,10",
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
