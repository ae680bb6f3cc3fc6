"""The workloads of the benchmark. Pixels are random, because the speed does not depend on them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import ml_collections
import numpy as np

from experiments.bench.jax_peers import plain_model
from fedjax_skew.config import default_config
from fedjax_skew.data import datasets
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.losses import cross_entropy
from fedjax_skew.simulation.problem import Problem, build


@dataclasses.dataclass(frozen=True)
class Workload:
    """A round to measure.

    Attributes:
        description: one line for the table.
        shape: shape of a sample; ``()`` for Synthetic(1,1).
        num_samples: size of the training set.
        changes: fields of the configuration.
    """

    description: str
    shape: tuple[int, ...]
    num_samples: int
    changes: dict[str, Any]


WORKLOADS = {
    "mlp": Workload(
        "MLP 784-200-200-10, 10 clients, Dirichlet(0.05), B=64, 5 epochs",
        (28, 28, 1),
        60_000,
        {
            "model": "mlp",
            "partition": "dirichlet(beta=0.05)",
            "num_clients": 10,
            "local_epochs": 5,
            "momentum": 0.9,
        },
    ),
    "tfcnn": Workload(
        "TFCNN 28x28, 100 clients, 10 %, B=64, 2 epochs",
        (28, 28, 1),
        60_000,
        {
            "model": "tfcnn",
            "partition": "iid",
            "num_clients": 100,
            "participation": 0.1,
            "local_epochs": 2,
        },
    ),
    "simple_cnn": Workload(
        "LeNet-like CNN on 32x32x3, 20 clients, Dirichlet(0.1), B=128, 1 epoch",
        (32, 32, 3),
        50_000,
        {
            "model": "simple_cnn",
            "partition": "dirichlet(beta=0.1)",
            "num_clients": 20,
            "batch_size": 128,
        },
    ),
    "fedavg_cnn": Workload(
        "FedAvg's CNN on 28x28, 100 clients x 300, 10 %, B=50, 1 epoch",
        (28, 28, 1),
        30_000,
        {
            "model": "fedavg_cnn",
            "partition": "iid",
            "num_clients": 100,
            "participation": 0.1,
            "batch_size": 50,
        },
    ),
    "fedlc_cnn": Workload(
        "FedLC's CNN of three convolutions 128 on 32x32x3, 8 clients x 2 steps of 64",
        (32, 32, 3),
        8 * 128,
        {
            "model": "fedlc_cnn",
            "partition": "iid",
            "num_clients": 8,
            "local_epochs": 0,
            "local_steps": 2,
        },
    ),
    "pfl_cnn": Workload(
        "CNN 32-64-pool-128 on 32x32x3, 1000 clients x 50, 50 per round, batch 10, 1 epoch",
        (32, 32, 3),
        50_000,
        {
            "model": "pfl_cnn",
            "partition": "iid",
            "num_clients": 1000,
            "participation": 0.05,
            "local_epochs": 1,
            "batch_size": 10,
        },
    ),
    "resnet8": Workload(
        "ResNet-8 width 16 on 32x32x3, 8 clients x 10 steps of 64",
        (32, 32, 3),
        8 * 640,
        {
            "model": "resnet8_w16",
            "partition": "iid",
            "num_clients": 8,
            "local_epochs": 0,
            "local_steps": 10,
        },
    ),
    "logistic": Workload(
        "logistic regression on Synthetic(1,1), 100 clients, B=128, 5 epochs",
        (),
        0,
        {"model": "logistic", "num_clients": 100, "local_epochs": 5, "batch_size": 128},
    ),
}


def make_config(workload: Workload, changes: Mapping[str, Any]) -> ml_collections.ConfigDict:
    """Returns the workload's configuration with ``changes`` by dotted field name."""
    config = default_config()
    config.update_from_flattened_dict(
        {"client_lr": 0.01, "rounds": 1_000_000, **workload.changes, **changes}
    )
    return config


def make_problem(workload: Workload, changes: Mapping[str, Any] | None = None) -> Problem:
    """Returns the workload's problem, with ``changes`` to the configuration."""
    config = make_config(workload, changes or {})
    return build(config, dataset=make_dataset(workload))


def make_dataset(workload: Workload) -> Dataset:
    """Returns a dataset of random pixels and balanced labels, or Synthetic(1,1)."""
    if not workload.shape:
        return datasets.load("synthetic(1,1)", num_clients=workload.changes["num_clients"])
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (workload.num_samples, *workload.shape), dtype=np.uint8)
    labels = (np.arange(workload.num_samples) % 10).astype(np.int32)
    half = (0.5,) * workload.shape[-1]
    return Dataset("random", x, labels, x[:100], labels[:100], 10, None, half, half)


def flops_per_sample(problem: Problem) -> float:
    """Returns the operations of one sample's gradient, as counted by XLA for plain convolutions."""
    model = plain_model(problem)
    x, labels = problem.dataset.x_train[:64], problem.dataset.y_train[:64]
    params, stats = jax.eval_shape(lambda: model.init(jax.random.key(0), x))

    def loss(params, stats):
        outputs, _ = model.apply(params, stats, x, train=True)
        return cross_entropy(outputs.logits, labels).mean()

    compiled: Any = jax.jit(jax.grad(loss)).lower(params, stats).compile()
    return compiled.cost_analysis()["flops"] / len(x)
