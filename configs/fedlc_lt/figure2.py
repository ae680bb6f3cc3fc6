r"""FedLC-LT Figure 2. FedAvg's model with one block trained again on a balanced auxiliary set: test
accuracy, and cosine and Euclidean distance of the average logits to those of FedAvg; CIFAR-10,
IF=50, alpha=0.4.

The whole figure, and one of its runs::

    python -m experiments.reproduce --figure=fedlc_lt/figure2 --workdir=runs/fedlc_lt_figure2
    python -m experiments.train --workdir=runs/one \
        --config=configs/fedlc_lt/figure2.py

Chosen here, because the paper does not say:

- Retraining: 500 steps of SGD, learning rate 0.01, batches of 64, running statistics fixed.
- Average logits: by class, over the test set; distances are averaged over classes.
- The stem belongs to the first block.
"""

import ml_collections

from configs import figures, tables
from configs.fedlc_lt import recipe

FIGURE = figures.Figure(
    name="fedlc_lt/figure2",
    about=__doc__,
    kind="blocks",
    shown=(
        figures.show(
            "fedavg",
            "cifar10",
            "resnet8",
            "longtail(if=50)+dirichlet(alpha=0.4)",
            fields={"server_data.labelled": 0.02},
        ),
    ),
    recipe=recipe.config,
    options={"steps": 500, "learning_rate": 0.01, "batch_size": 64},
)


def runs() -> list[tables.Run]:
    return FIGURE.runs()


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    return tables.get_config(runs(), arg)
