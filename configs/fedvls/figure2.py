r"""FedVLS Figure 2. Confusion matrix of the updated local model of client 3 on CIFAR-10 under
Dirichlet label skew (beta=0.5), trained with FedLC.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedvls/figure2 --workdir=runs/fedvls_figure2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedvls/figure2.py

Chosen here, because the paper does not say:

- The paper's partition is a picture of its appendix: here it is the draw of seed 0, so that other
  classes are the rare ones.
- The model: after the rounds of Table 1 and one more local update; one seed is trained.
"""

import ml_collections

from configs import figures, tables
from configs.fedvls import recipe

FIGURE = figures.Figure(
    name="fedvls/figure2",
    about=__doc__,
    kind="confusion",
    shown=(
        figures.show(
            "fedlc", "cifar10", "mobilenet_v2", "dirichlet(beta=0.5)", fields={"num_seeds": 1}
        ),
    ),
    recipe=recipe.config,
    options={"client": 3},
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
