"""``simulate``: a whole simulation in one call, without files."""

from collections.abc import Iterable, Sequence
from typing import Any

import flax.linen as nn
import ml_collections
import optax

from fedjax_skew.data.dataset import Dataset
from fedjax_skew.data.partition import Partition
from fedjax_skew.methods import Method
from fedjax_skew.simulation.callbacks import Callback
from fedjax_skew.simulation.problem import build
from fedjax_skew.simulation.progress import Progress
from fedjax_skew.simulation.trained import Result
from fedjax_skew.simulation.trainer import Recorder, Trainer, start
from fedjax_skew.simulation.waiting import BLOCK

PyTree = Any


def simulate(
    config: ml_collections.ConfigDict,
    *,
    dataset: Dataset | None = None,
    partition: Partition | Sequence[Partition] | None = None,
    method: Method | None = None,
    module: nn.Module | None = None,
    optimizer: optax.GradientTransformation | None = None,
    params: PyTree = None,
    progress: bool = False,
    callbacks: Iterable[Callback] = (),
) -> Result:
    """Simulates federated training and returns the model and its history, without writing files.

    Args:
        config: the configuration; see ``fedjax_skew.default_config``.
        dataset: replaces ``config.dataset``; see ``Dataset.from_arrays``.
        partition: replaces ``config.partition``: one partition for all seeds, or one per seed; see
            ``Partition.from_indices`` and ``Partition.from_client_ids``.
        method: replaces ``config.method``, for a method that is not registered.
        module: replaces ``config.model``: a flax module whose call ``(x, *, train, where)``
            returns ``(logits, features)`` and whose last layer is a dense layer named ``head``; or
            an NNX module wrapped by ``flax.nnx.bridge.to_linen(Class, ...)``.
        optimizer: replaces the configured SGD for local steps: a complete optimiser such as
            ``optax.adam(1e-3)``. Its updates are multiplied by the ratio of the round's
            ``client_lr`` to that of the first round, so that ``lr_schedule`` still applies; methods
            that read the learning rate see ``client_lr``. ``keep_momentum`` keeps its state between
            rounds.
        params: initial parameters that replace random ones, or flax variables with ``params`` and
            ``batch_stats``; shared by all seeds, or with a leading axis of seeds.
        progress: whether to show a progress bar.
        callbacks: callbacks that are called after every evaluation and at the end.

    Returns:
        The trained model with its history, summary and table of clients.

    Raises:
        ValueError: if the configuration or an object that replaces one of its fields is invalid.
        Diverged: if a result is not finite and ``on_nonfinite="stop"``.

    Example:
        >>> import fedjax_skew
        >>> config = fedjax_skew.default_config()
        >>> config.num_clients, config.rounds, config.method = 10, 3, "fedlc"
        >>> result = fedjax_skew.simulate(config)
        >>> [line["round"] for line in result.history]
        [1, 2, 3]
    """
    problem = build(
        config,
        dataset=dataset,
        partition=partition,
        method=method,
        module=module,
        optimizer=optimizer,
        params=params,
    )
    recorder = Recorder()
    point, history, initial = start(problem, recorder)
    name = problem.phases[0].method.name
    with Progress(name, config.rounds, 0, shown=progress) as bar:
        trainer = Trainer(problem, recorder, BLOCK, bar, callbacks)
        finished = trainer.run(point, history, initial)
    phase = problem.phases[-1]
    return Result(
        params=finished.state.params,
        stats=finished.state.stats,
        round=config.rounds,
        evaluated=finished.model,
        model=phase.model,
        method=phase.method,
        sample_shape=problem.dataset.x_train.shape[1:],
        sample_dtype=str(problem.dataset.x_train.dtype),
        history=finished.history,
        summary=finished.summary,
        clients=finished.clients,
    )
