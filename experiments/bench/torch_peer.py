"""The same round simulated sequentially in PyTorch, with the same model, batches and optimiser."""

import copy
import itertools
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.bench.jax_peers import client_batches
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.simulation.problem import Problem


class _Block(nn.Module):
    """A basic residual block with BatchNorm."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.main(x) + self.short(x))


def _conv(inputs: int, outputs: int, size: int, pool: bool, padding: int = 0) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, size, padding=padding), nn.ReLU()]
    return [*layers, nn.MaxPool2d(2)] if pool else layers


def _dense(*widths: int) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]


def make_module(name: str) -> nn.Module:
    """Returns the PyTorch equivalent of a model of this package."""
    layers: dict[str, list[nn.Module]] = {
        "logistic": _dense(60, 10),
        "mlp": _dense(784, 200, 200, 10),
        "simple_cnn": [
            *_conv(3, 6, 5, True),
            *_conv(6, 16, 5, True),
            *_dense(400, 120, 84, 10),
        ],
        "fedavg_cnn": [
            *_conv(1, 32, 5, True, padding=2),
            *_conv(32, 64, 5, True, padding=2),
            *_dense(3136, 512, 10),
        ],
        "tfcnn": [
            *_conv(1, 32, 3, True),
            *_conv(32, 64, 3, True),
            *_conv(64, 64, 3, False),
            *_dense(576, 64, 10),
        ],
        "pfl_cnn": [
            *_conv(3, 32, 3, False),
            *_conv(32, 64, 3, True),
            *_dense(64 * 14 * 14, 128, 10),
        ],
        "fedlc_cnn": [
            *_conv(3, 128, 3, True),
            *_conv(128, 128, 3, True),
            *_conv(128, 128, 3, False),
            *_dense(2048, 10),
        ],
        "resnet8_w16": [
            nn.Conv2d(3, 16, 3, 1, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            _Block(16, 16, 1),
            _Block(16, 32, 2),
            _Block(32, 64, 2),
            nn.AdaptiveAvgPool2d(1),
            *_dense(64, 10),
        ],
    }
    if name not in layers:
        raise ValueError(f"model={name!r} has no PyTorch equivalent; allowed: {', '.join(layers)}.")
    return nn.Sequential(*layers[name])


def pixels(dataset: Dataset, x: np.ndarray) -> torch.Tensor:
    """Converts samples to PyTorch tensors; images are normalised, with channels first."""
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    if x.dtype != np.uint8:
        return tensor
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (dataset.mean, dataset.std))
    return (tensor.permute(0, 3, 1, 2).float() / 255 - mean) / std


class TorchLoop:
    """Trains one client after another, one batch after another."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.module = make_module(problem.config.model)
        self.local = copy.deepcopy(self.module)
        self.rng = np.random.default_rng(0)

    def round(self) -> int:
        """Trains a cohort, averages the models by samples, and returns the number of samples."""
        config = self.problem.config
        start = copy.deepcopy(self.module.state_dict())
        total: dict[str, Any] = {}
        samples = 0
        for x, labels in client_batches(self.problem, self.rng):
            self.local.load_state_dict(start)
            optimizer = torch.optim.SGD(
                self.local.parameters(), config.client_lr, momentum=config.momentum
            )
            size = 0
            for bx, by in zip(x, labels, strict=True):
                optimizer.zero_grad()
                logits = self.local(pixels(self.problem.dataset, bx))
                target = torch.from_numpy(by.astype(np.int64))
                nn.functional.cross_entropy(logits, target).backward()
                optimizer.step()
                size += len(by)
            for name, value in self.local.state_dict().items():
                total[name] = total.get(name, 0) + size * value.double()
            samples += size
        mean = {n: (v / samples).to(start[n].dtype) for n, v in total.items()}
        self.module.load_state_dict(mean)
        return samples
