"""The phases of a problem: their models, optimisers, schedules and round specifications."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import optax
from jax.sharding import Mesh

from fedjax_skew import models
from fedjax_skew.data import augment
from fedjax_skew.data.dataset import Dataset
from fedjax_skew.engine import flops
from fedjax_skew.engine.local import LocalSpec
from fedjax_skew.engine.round import RoundSpec
from fedjax_skew.engine.target import Target
from fedjax_skew.methods import Method
from fedjax_skew.methods.base import RunInfo
from fedjax_skew.models.functional import Model, from_module, normalizer


@dataclasses.dataclass(frozen=True)
class Phase:
    """The rounds ``first`` to ``last - 1``, which share one method and one model."""

    method: Method
    model: Model
    spec: RoundSpec
    first: int
    last: int


def make_phases(
    config: ml_collections.ConfigDict,
    info: RunInfo,
    method: Method,
    model: Model,
    mesh: Mesh,
    target: Target,
    sample: jax.ShapeDtypeStruct,
    optimizer: optax.GradientTransformation | None = None,
) -> tuple[Phase, ...]:
    """Returns the phases of a method in order; almost all methods have only one.

    Args:
        config: the configuration.
        info: the run's constants.
        method: the method of the first phase.
        model: the model of the first phase.
        mesh: devices.
        target: the kind of device for which programs are compiled.
        sample: shape and dtype of one training sample.
        optimizer: replaces the configured SGD for local steps.
    """
    phases, first = [], 0
    while True:
        next_phase = method.next_phase
        last = config.rounds if next_phase is None else first + next_phase.rounds
        chunk = config.clients_per_chunk
        if not chunk:
            count = functools.partial(_step_flops, model, sample, info.batch_rows)
            chunk = target.clients_per_chunk(count)
        spec = RoundSpec(
            local=_local_spec(config, info, method, model, target, optimizer),
            mesh=mesh,
            target=target,
            clients_per_chunk=chunk,
            lr_schedule=make_schedule(config),
            stop_nonfinite=config.on_nonfinite == "stop",
            dropout=config.dropout,
            stragglers=config.stragglers,
        )
        phases.append(Phase(method, model, spec, first, last))
        if next_phase is None:
            return tuple(phases)
        first, method, model = last, next_phase.method, next_phase.model(model)


def make_model(
    config: ml_collections.ConfigDict,
    dataset: Dataset,
    method: Method,
    target: Target,
    module: nn.Module | None = None,
) -> Model:
    """Returns the configured model, or the given module, adapted to the needs of the method."""
    dtype = jnp.dtype(config.compute_dtype)
    name = f"model={config.model!r}"
    if module is None:
        module = models.build(
            config.model,
            dataset.num_classes,
            projection=method.projection,
            head_bias=method.head_bias,
            norm="group" if config.batch_norm == "group" else "batch",
            conv_impl=target.conv_impl if config.conv_impl == "auto" else config.conv_impl,
            dtype=dtype,
            remat=config.remat,
        )
    else:
        name = f"module={type(module).__name__}"
    normalize = normalizer(dataset.mean, dataset.std, dtype)
    model = from_module(module, normalize, blocks=method.needs_blocks)
    _check_fit(name, config.augment, dataset, model)
    return method.model(model) if method.model else model


def make_schedule(config: ml_collections.ConfigDict) -> Callable[[Any], Any]:
    """Returns ``round -> client learning rate``, a pytree whose only leaf is ``client_lr``."""
    name, rounds, decay = config.lr_schedule, config.rounds, config.lr_decay
    scales = {int(f * rounds): decay for f in config.lr_milestones}

    def schedule(lr, round_):
        if name == "exponential":
            return optax.exponential_decay(lr, 1, decay)(round_)
        if name == "cosine":
            return optax.cosine_decay_schedule(lr, rounds)(round_)
        if name == "step":
            return optax.piecewise_constant_schedule(lr, scales)(round_)
        return lr

    return jax.tree_util.Partial(schedule, config.client_lr)


def make_optimizer(
    config: ml_collections.ConfigDict,
    method: Method,
    given: optax.GradientTransformation | None = None,
) -> Callable[[], optax.GradientTransformation]:
    """Returns a function that makes the transformation of a local step.

    The engine multiplies its updates by ``-client_lr``. The function is a pytree whose leaves are
    the numbers of the configured SGD.

    By default, it is the configured SGD, which applies clipping, weight decay and momentum; a
    method may replace momentum by another transformation. If ``given``, it is a complete optimiser
    such as ``optax.adam(1e-3)`` with its own learning rate. Its updates are divided by the first
    client learning rate, so that ``client_lr`` only affects the schedule over rounds.
    """
    if given is not None:
        complete = optax.chain(given, optax.scale(-1.0 / config.client_lr))
        return jax.tree_util.Partial(lambda: complete)

    def sgd(numbers):
        parts = []
        if "clip_norm" in numbers:
            parts.append(optax.clip_by_global_norm(numbers["clip_norm"]))
        if "weight_decay" in numbers:
            parts.append(optax.add_decayed_weights(numbers["weight_decay"]))
        if method.optimizer:
            parts.append(method.optimizer)
        elif "momentum" in numbers:
            parts.append(optax.trace(numbers["momentum"]))
        return optax.chain(*parts) if parts else optax.identity()

    fields = ("clip_norm", "weight_decay", "momentum")
    return jax.tree_util.Partial(sgd, {name: config[name] for name in fields if config[name]})


def check_optimizer(config: ml_collections.ConfigDict, method: Method) -> None:
    """Raises if a field or the method has settings that a given optimiser would ignore."""
    if method.optimizer is not None:
        raise ValueError(
            f"method={method.name!r} has its own client optimiser, which a given one would "
            "replace; use one of the two."
        )
    for field in ("momentum", "weight_decay", "clip_norm"):
        if config[field]:
            raise ValueError(
                f"{field}={config[field]} belongs to the configured SGD, which a given optimizer "
                "replaces; it must be 0."
            )


def _local_spec(
    config: ml_collections.ConfigDict,
    info: RunInfo,
    method: Method,
    model: Model,
    target: Target,
    optimizer: optax.GradientTransformation | None,
) -> LocalSpec:
    return LocalSpec(
        info=info,
        model=model,
        method=method,
        optimizer=make_optimizer(config, method, optimizer),
        local_epochs=0 if method.local_steps else config.local_epochs,
        local_steps=method.local_steps or config.local_steps,
        drop_last=config.drop_last,
        augment=functools.partial(
            augment.augment, config.augment, sequential=target.sequential_augmentation
        ),
        keep_momentum=info.keep_momentum or method.keep_optimizer_state,
        skip_nonfinite=config.on_nonfinite == "skip",
        steps_per_draw=target.steps_per_draw,
    )


def _step_flops(model: Model, sample: jax.ShapeDtypeStruct, batch_size: int) -> float:
    """Estimates the operations of one gradient as three times those of the forward pass."""
    x = jax.ShapeDtypeStruct((batch_size, *sample.shape), sample.dtype)
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, stats = jax.eval_shape(model.init, key, x)
    forward = functools.partial(model.apply, train=True)
    return 3 * sum(flops.count(jax.make_jaxpr(forward)(params, stats, x).jaxpr))


def _check_fit(name: str, augmentation: str, dataset: Dataset, model: Model) -> None:
    """Raises if the model or the augmentation does not fit the samples, without compilation."""
    sample = jax.ShapeDtypeStruct((1, *dataset.x_train.shape[1:]), dataset.x_train.dtype)
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        jax.eval_shape(lambda x, key: augment.augment(augmentation, x, key), sample, key)
        params, stats = jax.eval_shape(model.init, key, sample)
        outputs, _ = jax.eval_shape(model.apply, params, stats, sample)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        if isinstance(error, ZeroDivisionError):  # An initialiser divides by its number of inputs.
            reason = "no pixels remain for the last layer"
        raise ValueError(
            f"{name} with augment={augmentation!r} is incompatible with {dataset.name}'s samples "
            f"of shape {sample.shape[1:]}: {reason}."
        ) from error
    expected = (1, dataset.num_classes)
    if outputs.logits.shape != expected or "kernel" not in params.get("head", {}):
        raise ValueError(
            f"{name} returns logits of shape {outputs.logits.shape} and has the layers "
            f"{sorted(params)}; it must return (logits, features), with logits of shape {expected} "
            "for one sample, from a last dense layer named 'head'."
        )
