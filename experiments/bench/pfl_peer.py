"""The same round simulated by pfl-research, with its PyTorch model and backend."""

from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import nn

from experiments.bench.torch_peer import make_module, pixels
from fedjax_skew.simulation.problem import Problem


class _Module(nn.Module):
    """A module with the interface that pfl requires."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def loss(self, x: torch.Tensor, labels: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.train(not eval)
        return nn.functional.cross_entropy(self.body(x), labels)

    def metrics(self, x: torch.Tensor, labels: torch.Tensor, eval: bool = True) -> dict[str, Any]:
        return {}


class PflRound:
    """One central iteration of federated averaging."""

    def __init__(self, problem: Problem):
        config, data, info = problem.config, problem.data, problem.info
        self.samples, self.rounds = 0, 0
        rng = np.random.default_rng(0)

        def client(k: int) -> Dataset:
            ids = np.asarray(data.order[0, data.offsets[0, k] : data.offsets[0, k + 1]])
            self.samples += config.local_epochs * len(ids)
            labels = torch.from_numpy(data.labels[ids].astype(np.int64))
            return Dataset((pixels(problem.dataset, data.x[ids]), labels))

        clients = FederatedDataset(client, lambda: int(rng.integers(info.num_clients)))
        self.backend = SimulatedBackend(training_data=clients, val_data=clients)
        module = _Module(make_module(config.model))
        self.model = PyTorchModel(
            module,
            lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=config.momentum),
            torch.optim.SGD(module.parameters(), 1.0),
        )
        self.algorithm = FederatedAveraging()
        self.local = NNTrainHyperParams(
            local_num_epochs=config.local_epochs,
            local_learning_rate=config.client_lr,
            local_batch_size=config.batch_size,
        )
        self.cohort_size = info.cohort_size

    def round(self) -> int:
        """Trains a cohort and returns the number of samples it used."""
        self.rounds += 1
        before = self.samples
        params = NNAlgorithmParams(
            central_num_iterations=self.rounds,
            evaluation_frequency=2**31,
            train_cohort_size=self.cohort_size,
            val_cohort_size=0,
        )
        self.model = self.algorithm.run(
            params, self.backend, self.model, self.local, send_metrics_to_platform=False
        )
        return self.samples - before
