"""Trained models and the results of simulations."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from fedjax_skew.methods import Method
from fedjax_skew.models.functional import Model

PyTree = Any
_BATCH = 500


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedModel:
    """The model of a run.

    Attributes:
        params: global parameters ``[S, ...]``, with a leading axis of seeds.
        stats: running statistics of normalisation layers ``[S, ...]``.
        round: number of rounds done.
        evaluated: the model that the method evaluates ``[S, ...]``: ``(params, stats)``, or a model
            derived from them, such as an average over rounds or a calibrated model.
        model: the pure functions of the network.
        method: the method that trained the model.
        sample_shape: shape of one sample.
        sample_dtype: dtype of the samples as stored: ``uint8`` for images, otherwise ``float32``.
    """

    params: PyTree
    stats: PyTree
    round: int
    evaluated: PyTree
    model: Model
    method: Method
    sample_shape: tuple[int, ...]
    sample_dtype: str

    def predict(self, x: Any, *, seed: int = 0) -> np.ndarray:
        """Returns the logits ``[N, C]`` of the evaluated model; ``argmax(-1)`` gives classes.

        Args:
            x: samples ``[N, ...]`` like those of the dataset: images as integers in 0..255, other
                data as floats. They are normalised as in training.
            seed: index of the seed whose model is used.

        Raises:
            ValueError: if the shape or dtype of the samples differs from that of the dataset.
        """
        x = self._samples(x)
        num_seeds = len(jax.tree.leaves(self.params)[0])
        if not 0 <= seed < num_seeds:
            raise ValueError(f"seed={seed} must be an index from 0 to {num_seeds - 1}.")
        evaluated = jax.tree.map(lambda a: a[seed], self.evaluated)
        size = max(1, min(_BATCH, len(x)))
        parts = []
        for first in range(0, max(len(x), 1), size):
            part = x[first : first + size]
            padded = np.zeros((size, *x.shape[1:]), x.dtype)
            padded[: len(part)] = part
            parts.append(np.asarray(self._forward(evaluated, padded))[: len(part)])
        return np.concatenate(parts)

    @functools.cached_property
    def _forward(self) -> Any:
        def forward(evaluated, x):
            if self.method.predict is None:
                return self.model.apply(*evaluated, x)[0].logits
            return self.method.predict(self.model, evaluated, x).logits

        return jax.jit(forward)

    def _samples(self, x: Any) -> np.ndarray:
        x = np.asarray(x)
        if (*x.shape, 1) == (len(x), *self.sample_shape):
            x = x[..., None]
        images = self.sample_dtype == "uint8"
        fits = x.ndim > 0 and x.shape[1:] == self.sample_shape
        if fits and images:
            fits = x.dtype.kind in "iu" and x.min(initial=0) >= 0 and x.max(initial=0) <= 255
        if not fits or x.dtype.kind not in "iuf":
            words = "integers in 0..255" if images else "numbers"
            raise ValueError(
                f"x is {x.dtype} {list(x.shape)}, but predict needs {words} of shape "
                f"{['N', *self.sample_shape]}."
            )
        return x.astype(self.sample_dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Result(TrainedModel):
    """The result of a simulation: the trained model and its history.

    Attributes:
        history: one line of metrics per evaluation, whose columns are described by ``COLUMNS`` of
            ``simulation.columns``. Only the last line has a confusion matrix.
        summary: last, best and mean accuracy, and the other content of ``summary.json``.
        clients: a table of all clients, whose columns are described by ``COLUMNS`` of
            ``simulation.clients``; None if there are too many clients.
    """

    history: list[dict[str, Any]]
    summary: dict[str, Any]
    clients: dict[str, np.ndarray] | None = None
