"""Federated learning under label skew, vectorised in JAX.

``dir(fedjax_skew)`` lists the public API; all other modules are implementation details. Names are
imported on first use, so that ``import fedjax_skew`` imports nothing else and ``import
fedjax_skew.losses`` requires only JAX.

Runs
    ``default_config``, ``simulate`` (one call, without files), ``train_and_evaluate`` (with a run
    directory), ``load_model`` (from a run directory), ``make_simulation`` (pure functions for jit,
    scan and vmap), ``Callback``
Data
    ``Dataset`` (``Dataset.from_arrays``), ``load_dataset``, ``partition``, ``Partition``
    (``Partition.from_indices``, ``Partition.from_client_ids``), ``save_partition``
Building blocks
    ``losses`` (pure kernels), ``methods`` (by name), ``models`` (flax modules)
Custom methods
    ``Method``, ``compose`` and the records that a method's functions receive and return:
    ``InitContext``, ``RunInfo``, ``Client``, ``Batch``, ``LossContext``, ``Step``, ``Aux``,
    ``StepResult``, ``LocalResult``, ``Upload``, ``Round``, ``ServerResult``, ``MethodState``,
    ``Evaluation``, ``NextPhase``
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedjax_skew import losses as losses, methods as methods, models as models
    from fedjax_skew.config import default_config as default_config
    from fedjax_skew.data.client_lists import save_partition as save_partition
    from fedjax_skew.data.dataset import Dataset as Dataset
    from fedjax_skew.data.datasets import load as load_dataset
    from fedjax_skew.data.partition import Partition as Partition, partition as partition
    from fedjax_skew.methods.base import (
        Aux as Aux,
        Batch as Batch,
        Client as Client,
        Evaluation as Evaluation,
        InitContext as InitContext,
        LocalResult as LocalResult,
        LossContext as LossContext,
        Method as Method,
        MethodState as MethodState,
        NextPhase as NextPhase,
        Round as Round,
        RunInfo as RunInfo,
        ServerResult as ServerResult,
        Step as Step,
        StepResult as StepResult,
        Upload as Upload,
    )
    from fedjax_skew.methods.composition import compose as compose
    from fedjax_skew.runs.load import load_model as load_model
    from fedjax_skew.runs.train import train_and_evaluate as train_and_evaluate
    from fedjax_skew.simulation.callbacks import Callback as Callback
    from fedjax_skew.simulation.pure import make_simulation as make_simulation
    from fedjax_skew.simulation.simulate import simulate as simulate

__version__ = "0.2.0"

# The module in which each public name is defined.
_PLACES = {
    "Aux": "methods.base.Aux",
    "Batch": "methods.base.Batch",
    "Callback": "simulation.callbacks.Callback",
    "Client": "methods.base.Client",
    "Dataset": "data.dataset.Dataset",
    "Evaluation": "methods.base.Evaluation",
    "InitContext": "methods.base.InitContext",
    "LocalResult": "methods.base.LocalResult",
    "LossContext": "methods.base.LossContext",
    "Method": "methods.base.Method",
    "MethodState": "methods.base.MethodState",
    "NextPhase": "methods.base.NextPhase",
    "Partition": "data.partition.Partition",
    "Round": "methods.base.Round",
    "RunInfo": "methods.base.RunInfo",
    "ServerResult": "methods.base.ServerResult",
    "Step": "methods.base.Step",
    "StepResult": "methods.base.StepResult",
    "Upload": "methods.base.Upload",
    "compose": "methods.composition.compose",
    "default_config": "config.default_config",
    "load_dataset": "data.datasets.load",
    "load_model": "runs.load.load_model",
    "losses": "losses",
    "make_simulation": "simulation.pure.make_simulation",
    "methods": "methods",
    "models": "models",
    "partition": "data.partition.partition",
    "save_partition": "data.client_lists.save_partition",
    "simulate": "simulation.simulate.simulate",
    "train_and_evaluate": "runs.train.train_and_evaluate",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    """Imports a public name on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].rpartition(".")
    if not module:
        return importlib.import_module(f"{__name__}.{attribute}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value  # Looked up once.
    return value


def __dir__() -> list[str]:
    """Lists the public API."""
    return __all__
