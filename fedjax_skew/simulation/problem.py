"""From a configuration to arrays and pure functions."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from fedjax_skew import models, trees
from fedjax_skew.config import check
from fedjax_skew.data import augment, datasets
from fedjax_skew.data.dataset import Dataset, validate
from fedjax_skew.data.federated import FederatedData, federate
from fedjax_skew.data.holdout import with_validation
from fedjax_skew.data.partition import Partition, partition
from fedjax_skew.engine.client_state import init_client_state
from fedjax_skew.engine.keys import Stream, seed_keys, stream_keys
from fedjax_skew.engine.local import ClientState, LocalSpec
from fedjax_skew.engine.mesh import client_mesh, fetch, replicate
from fedjax_skew.engine.round import RoundSpec, State
from fedjax_skew.methods import Method, compose
from fedjax_skew.methods.base import InitContext, RunInfo
from fedjax_skew.methods.fedbn import local_statistics
from fedjax_skew.models.functional import Model, from_module, normalizer


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of rounds with one method and one model; ``last`` is exclusive."""

    method: Method
    model: Model
    spec: RoundSpec
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class Problem:
    """A checked configuration, its data on the host, and its phases."""

    config: ml_collections.ConfigDict
    dataset: Dataset
    partitions: tuple[Partition, ...]
    data: FederatedData
    seeds: tuple[int, ...]
    phases: tuple[Phase, ...]

    @property
    def info(self) -> RunInfo:
        """The run's constants."""
        return self.phases[0].spec.local.info

    @property
    def keys(self) -> jax.Array:
        """Raw PRNG keys ``[S, 2]``, one per seed."""
        return seed_keys(jnp.asarray(self.seeds, jnp.uint32))


def build(
    config: ml_collections.ConfigDict,
    *,
    dataset: Dataset | None = None,
    method: Method | None = None,
    module: nn.Module | None = None,
) -> Problem:
    """Checks the configuration, loads and divides the data, and makes the pure functions.

    Args:
        config: see ``fedjax_skew.config.default_config``.
        dataset: used in place of ``config.dataset``.
        method: used in place of ``config.method``, for one that is not registered.
        module: used in place of ``config.model``: a flax module whose call ``(x, *, train, where)``
            gives ``(logits, features)`` and whose last layer is named ``head``.
    """
    method = check(config, method)
    dataset = validate(dataset) if dataset else load_dataset(config)
    dataset = with_validation(dataset, config.dataset.validation, config.dataset.seed)
    seeds = tuple(range(config.seed, config.seed + config.num_seeds))
    partitions = tuple(divide(config, dataset, seed) for seed in seeds)
    other = config.server_data.unlabelled_dataset
    foreign = method.needs_unlabelled_data and other and other != "labelled"
    unlabelled = _unlabelled(other, config, dataset) if foreign else None
    data = federate(dataset.x_train, dataset.y_train, partitions, unlabelled)
    if other == "labelled":
        data = data._replace(unlabelled=data.labelled)
    num_clients = partitions[0].class_counts.shape[0]
    info = RunInfo(
        num_clients=num_clients,
        num_classes=dataset.num_classes,
        cohort_size=max(1, round(num_clients * config.participation)),
        rounds=config.rounds,
        batch_size=config.batch_size,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        keep_momentum=config.keep_momentum and config.momentum > 0,
        sgd=method.optimizer is None,
    )
    _check_size_of_round(config, partitions)
    if config.batch_norm == "local":
        method = compose([method, local_statistics()])
    phases = _phases(config, info, method, make_model(config, dataset, method, module))
    return Problem(config, dataset, partitions, data, seeds, phases)


def load_dataset(config: ml_collections.ConfigDict, name: str = "") -> Dataset:
    """The dataset a configuration names (or ``name`` in its place)."""
    name = name or config.dataset.name
    options = {
        option: config.dataset[option]
        for option in ("path", "image_size", "num_classes", "synsets")
        if config.dataset[option] and name == config.dataset.name
    }
    return datasets.load(
        name,
        data_dir=config.dataset.data_dir or None,
        seed=config.dataset.seed,
        num_clients=config.num_clients,
        **options,
    )


def divide(config: ml_collections.ConfigDict, dataset: Dataset, seed: int) -> Partition:
    """The partition of one seed."""
    server = config.server_data
    return partition(
        config.partition,
        dataset.y_train,
        num_clients=config.num_clients,
        num_classes=dataset.num_classes,
        seed=seed,
        client_ids=dataset.client_ids,
        labelled=server.labelled,
        unlabelled=0.0 if server.unlabelled_dataset else server.unlabelled,
    )


def make_model(
    config: ml_collections.ConfigDict,
    dataset: Dataset,
    method: Method,
    module: nn.Module | None = None,
) -> Model:
    """The configured model with what the method needs of it, or the given module."""
    dtype = jnp.dtype(config.compute_dtype)
    given = module
    if module is None:
        module = models.build(
            config.model,
            dataset.num_classes,
            projection=method.projection,
            head_bias=method.head_bias,
            norm="group" if config.batch_norm == "group" else "batch",
            conv_impl=config.conv_impl,
            dtype=dtype,
            remat=config.remat,
        )
    normalize = normalizer(dataset.mean, dataset.std, dtype)
    model = from_module(module, normalize, blocks=method.needs_blocks)
    if given is None:
        _check_fit(config, dataset, model)
    return method.model(model) if method.model else model


def make_schedule(config: ml_collections.ConfigDict) -> Callable[[jax.Array], jax.Array]:
    """``round -> client learning rate``."""
    lr, rounds = config.client_lr, config.rounds
    if config.lr_schedule == "exponential":
        return optax.exponential_decay(lr, 1, config.lr_decay)
    if config.lr_schedule == "cosine":
        return optax.cosine_decay_schedule(lr, rounds)
    if config.lr_schedule == "step":
        scales = {int(f * rounds): config.lr_decay for f in config.lr_milestones}
        return optax.piecewise_constant_schedule(lr, scales)
    return optax.constant_schedule(lr)


def make_optimizer(
    config: ml_collections.ConfigDict, method: Method
) -> optax.GradientTransformation:
    """The client optimiser without the learning rate, which changes by round.

    Clipping, weight decay and momentum; a method may bring a transformation in place of momentum.
    """
    parts = []
    if config.clip_norm:
        parts.append(optax.clip_by_global_norm(config.clip_norm))
    if config.weight_decay:
        parts.append(optax.add_decayed_weights(config.weight_decay))
    if method.optimizer:
        parts.append(method.optimizer)
    elif config.momentum:
        parts.append(optax.trace(config.momentum))
    return optax.chain(*parts) if parts else optax.identity()


def initial_state(problem: Problem) -> State:
    """State before the first round; seeds differ in everything that is random."""
    phase = problem.phases[0]
    model_keys = stream_keys(problem.keys, Stream.INIT)
    sample = jnp.asarray(problem.dataset.x_train[:1])
    params, stats = jax.jit(jax.vmap(lambda key: phase.model.init(key, sample)))(model_keys)
    return phase_state(problem, phase, params, stats)


def phase_state(problem: Problem, phase: Phase, params: Any, stats: Any) -> State:
    """The state of a phase that starts from given models ``[S, ...]``, where it belongs."""
    method, mesh = phase.method, phase.spec.mesh
    server = client_state = None
    if method.init:
        states = [method.init(context) for context in init_contexts(problem, phase, params, stats)]
        server, client_state = (
            trees.stack([s.server for s in states]),
            trees.stack([s.client for s in states]),
        )
    momentum = None
    if phase.spec.local.keep_momentum:
        momentum = jax.vmap(phase.spec.local.optimizer.init)(params)

    placement = problem.config.state_placement
    client_state = init_client_state(
        ClientState(client_state, momentum), problem.info.num_clients, mesh, placement
    )
    params, stats, server, first, keys = replicate(
        (params, stats, server, np.int32(phase.first), problem.keys), mesh
    )
    return State(params, stats, server, client_state, first, keys)


def init_contexts(problem: Problem, phase: Phase, params: Any, stats: Any) -> list[InitContext]:
    """What a method's ``init`` sees, a seed at a time."""
    keys = stream_keys(problem.keys, Stream.METHOD, phase.first)
    return [
        InitContext(
            info=problem.info,
            model=phase.model,
            params=trees.index(params, s),
            stats=trees.index(stats, s),
            class_counts=problem.partitions[s].class_counts,
            key=keys[s],
        )
        for s in range(len(problem.seeds))
    ]


def start_next_phase(problem: Problem, ended: Phase, state: State) -> State:
    """Carries a state over the border between two phases."""
    phase = problem.phases[problem.phases.index(ended) + 1]
    assert ended.method.next_phase is not None
    params, stats, server = fetch((state.params, state.stats, state.server))
    made = [
        ended.method.next_phase.transition(
            context,
            context.params,
            context.stats,
            trees.index(server, s),
        )
        for s, context in enumerate(init_contexts(problem, ended, params, stats))
    ]
    params, stats = (trees.stack(list(part)) for part in zip(*made, strict=True))
    return phase_state(problem, phase, params, stats)


def fingerprint(tree: Any) -> str:
    """A hash of all values of a pytree."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()[:16]


def _check_fit(config, dataset: Dataset, model: Model) -> None:
    """Raises if model or augmentation cannot take the samples; nothing is compiled for it."""
    sample = jax.ShapeDtypeStruct((1, *dataset.x_train.shape[1:]), dataset.x_train.dtype)
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        jax.eval_shape(lambda x, key: augment.augment(config.augment, x, key), sample, key)
        jax.eval_shape(model.init, key, sample)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        if isinstance(error, ZeroDivisionError):  # An initialiser divides by its number of inputs.
            reason = "no pixel of them is left for the last layer"
        raise ValueError(
            f"model={config.model!r} with augment={config.augment!r} cannot take {dataset.name}'s "
            f"samples of shape {sample.shape[1:]}: {reason}."
        ) from error


def _check_size_of_round(config, partitions: tuple[Partition, ...]) -> None:
    """Raises if the samples that a round goes through cannot be counted in int32."""
    samples = max(len(p.order) for p in partitions)
    clients = partitions[0].class_counts.shape[0]
    field, size = "local_epochs", samples
    if config.local_steps:
        field, size = "local_steps", clients * config.batch_size
    if config[field] * size >= 2**31:
        raise ValueError(
            f"{field}={config[field]} is too much work for one round of {clients} clients; it must "
            f"be at most {(2**31 - 1) // size}, so that its samples can be counted."
        )


def _phases(config, info, method, model) -> tuple[Phase, ...]:
    phases, first = [], 0
    while True:
        next_phase = method.next_phase
        last = config.rounds if next_phase is None else first + next_phase.rounds
        phases.append(Phase(method, model, _spec(config, info, method, model), first, last))
        if next_phase is None:
            return tuple(phases)
        first, method, model = last, next_phase.method, next_phase.model(model)


def _spec(config, info: RunInfo, method: Method, model: Model) -> RoundSpec:
    local = LocalSpec(
        info=info,
        model=model,
        method=method,
        optimizer=make_optimizer(config, method),
        local_epochs=0 if method.local_steps else config.local_epochs,
        local_steps=method.local_steps or config.local_steps,
        drop_last=config.drop_last,
        augment=lambda x, key: augment.augment(config.augment, x, key),
        keep_momentum=(config.keep_momentum and config.momentum > 0) or method.keep_optimizer_state,
        skip_nonfinite=config.on_nonfinite == "skip",
    )
    return RoundSpec(
        local=local,
        mesh=client_mesh(config.num_devices),
        clients_per_chunk=config.clients_per_chunk or _auto_chunk(),
        lr_schedule=make_schedule(config),
        stop_nonfinite=config.on_nonfinite == "stop",
    )


def _auto_chunk() -> int:
    """Clients per chunk: an accelerator is wide, a CPU core is full with one."""
    return 1 if jax.default_backend() == "cpu" else 16


def _unlabelled(name: str, config, dataset: Dataset) -> np.ndarray:
    other = load_dataset(config, name).x_train
    if other.shape[1:] != dataset.x_train.shape[1:]:
        raise ValueError(
            f"server_data.unlabelled_dataset={name!r} has samples of shape {other.shape[1:]}, but "
            f"{dataset.name} has {dataset.x_train.shape[1:]}; they must be equal."
        )
    return other
