"""The interface of a method: the parts of a federated round that may differ from FedAvg.

A method is a frozen record of pure functions. Each of them may be ``None``, which selects FedAvg's
behaviour:

==============  ============================================================================
objective       ``loss`` replaces the cross-entropy, ``regularizer`` is added to it
local rule      ``step`` replaces one optimiser step, ``correct_gradient`` changes its
                gradient, ``trainable`` freezes parameters, ``optimizer`` replaces momentum
client          ``start`` and ``before_training`` run before local training, ``make_upload`` after
server rule     ``weight`` and ``server`` compute the next global model,
                ``update_server_state`` the next server state
evaluation      ``eval_model`` and ``predict`` for the global model, ``personal`` per client
==============  ============================================================================

In a composition, only one method may define each of ``loss``, ``step``, ``optimizer``, ``start``,
``weight``, ``server``, ``model`` and the evaluation hooks. The other hooks of all methods are
applied together, so that any objective can be combined with any local rule and any server rule
(see ``composition.py``).

A hook is a function, or a ``jax.tree_util.Partial`` that binds numbers to one. Bound numbers are
inputs of compiled programs, so that runs which differ only in them share a program; numbers that a
function closes over are constants of the program::

    Method("fedprox", regularizer=Partial(regularizer, mu))  # regularizer(mu, context)

A term that zero disables is left out of the program: its weight is bound as ``mu or None``, or a
dict has only the weights that are ``nonzero``.

There are two kinds of state. The ``client`` state belongs to one client and is stored with a
leading client axis. The ``server`` state is one pytree that every client may read. ``init`` creates
both.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_skew.models.functional import Model, Outputs

PyTree = Any


class Batch(NamedTuple):
    """A padded batch.

    Attributes:
        x: samples ``[B, ...]`` as stored, already augmented.
        labels: int32 ``[B]``.
        where: bool ``[B]``, False for padding.
    """

    x: jax.Array
    labels: jax.Array
    where: jax.Array


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """Constants of the run, which are known when the program is traced.

    ``keep_momentum`` is True if clients keep the momentum of their last round. ``sgd`` is True if
    clients use SGD with momentum, and False if the method or the caller supplies an optimiser. No
    client has more than ``largest_client`` samples.
    """

    num_clients: int
    num_classes: int
    cohort_size: int
    rounds: int
    batch_size: int
    momentum: float
    weight_decay: float
    keep_momentum: bool = False
    sgd: bool = True
    largest_client: int = 2**31 - 1

    @property
    def batch_rows(self) -> int:
        """The number of rows of a padded batch, which never exceeds the largest client."""
        return min(self.batch_size, self.largest_client)


@dataclasses.dataclass(frozen=True)
class InitContext:
    """The argument of ``init``, for one seed, on the host.

    Attributes:
        info: the run's constants.
        model: the model's pure functions.
        params: initial global parameters.
        stats: initial running statistics.
        class_counts: numpy int32 ``[K, C]``, the number of samples per client and class.
        key: PRNG key of this seed for the method.
    """

    info: RunInfo
    model: Model
    params: PyTree
    stats: PyTree
    class_counts: Any
    key: jax.Array


class MethodState(NamedTuple):
    """Initial state of a method: that of the server, and that of a single client, or None."""

    server: PyTree = None
    client: PyTree = None


@dataclasses.dataclass(frozen=True)
class Client:
    """One client in one round.

    Attributes:
        info: the run's constants.
        model: the model's pure functions.
        params: global parameters at the start of the round.
        stats: global running statistics at the start of the round.
        id: int32, the index of the client.
        class_counts: float32 ``[C]``, the client's number of samples per class.
        num_samples: float32, the client's number of samples.
        num_steps: int32, the number of local steps that the client takes.
        round: int32, the index of the round, from 0.
        lr: float32, the client learning rate of the round.
        key: PRNG key of (seed, round, client).
        state: the method's state on the client, carried from round to round.
        server: the method's server state, as broadcast.
        fold: ``fold(fn, init, key=None, batches=0, augment=False)`` applies ``carry = fn(carry,
            batch)`` to each batch of one pass over the client's data. The data is sorted by class,
            or shuffled if a ``key`` is given, in which case ``augment=True`` also augments it.
            Padded batches do not change the carry. If ``batches`` is positive, the pass ends after
            that many batches.
        sample_class: ``sample_class(key, c, size)`` draws a ``Batch`` of the client's samples of
            class ``c`` with replacement; ``where`` is False if the client has none.
    """

    info: RunInfo
    model: Model
    params: PyTree
    stats: PyTree
    id: jax.Array
    class_counts: jax.Array
    num_samples: jax.Array
    num_steps: jax.Array
    round: jax.Array
    lr: jax.Array
    key: jax.Array
    state: PyTree
    server: PyTree
    fold: Callable[..., PyTree]
    sample_class: Callable[[jax.Array, jax.Array, int], Batch]

    def teacher(self, batch: Batch, *, train: bool = False) -> Outputs:
        """Returns the outputs of the round's global model on a batch, without gradients."""
        outputs, _ = self.model.apply(
            self.params, self.stats, batch.x, train=train, where=batch.where
        )
        return jax.lax.stop_gradient(outputs)


@dataclasses.dataclass(frozen=True)
class LossContext:
    """The argument of an objective: one batch of one client.

    Attributes:
        client: the client and its round.
        params: local parameters at which the gradient is taken.
        outputs: the local model's logits and features.
        batch: the batch.
        scratch: the method's temporary variables of this local training.
        step: int32, the index of the local step, from 0.
        epoch_start: bool, True at the first step of an epoch.
        key: PRNG key of the step.
    """

    client: Client
    params: PyTree
    outputs: Outputs
    batch: Batch
    scratch: PyTree
    step: jax.Array
    epoch_start: jax.Array
    key: jax.Array

    def mean(self, values: jax.Array) -> jax.Array:
        """Returns the mean of per-example values ``[B]`` over the valid rows."""
        return masked_mean(values, self.batch.where)


class Aux(NamedTuple):
    """Auxiliary results of a gradient: the objective, the new running statistics and scratch."""

    loss: jax.Array
    stats: PyTree
    scratch: PyTree


@dataclasses.dataclass(frozen=True)
class Step:
    """The argument of a local rule.

    Attributes:
        client: the client and its round.
        params: local parameters.
        opt_state: the optimiser's state.
        batches: ``num_batches`` batches.
        scratch: the method's scratch.
        key: PRNG key of the step.
        step: int32, the index of the local step, from 0.
        stats: local running statistics.
        grad: ``grad(params, batch, stats=stats) -> (gradient, Aux)`` computes the gradient of the
            whole objective; it is 0 for frozen parameters.
        freeze: sets the entries of frozen parameters to 0, for gradients of other functions.
        descend: ``descend(params, gradient, opt_state) -> (params, opt_state)`` applies gradient
            corrections, clipping, weight decay, momentum and the learning rate; frozen parameters
            do not change.
    """

    client: Client
    params: PyTree
    opt_state: PyTree
    batches: tuple[Batch, ...]
    scratch: PyTree
    key: jax.Array
    step: jax.Array
    stats: PyTree
    grad: Callable[..., tuple[PyTree, Aux]]
    freeze: Callable[[PyTree], PyTree]
    descend: Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]


class StepResult(NamedTuple):
    """The result of a local rule; ``scratch`` is the method's own."""

    params: PyTree
    opt_state: PyTree
    scratch: PyTree
    aux: Aux


class LocalResult(NamedTuple):
    """A client after local training.

    Attributes:
        params: local parameters.
        stats: local running statistics.
        start: the parameters from which local training started.
        scratch: the method's scratch at the end.
        before_training: the result of ``before_training``.
    """

    params: PyTree
    stats: PyTree
    start: PyTree
    scratch: PyTree
    before_training: PyTree


class Upload(NamedTuple):
    """The result of a client's round.

    Attributes:
        state: the client's new state; None leaves it unchanged.
        stacked: small statistics, which the server receives with a leading ``[M]`` axis.
        summed: large statistics, which the server receives as a plain sum over the cohort.
    """

    state: PyTree = None
    stacked: PyTree = None
    summed: PyTree = None


@dataclasses.dataclass(frozen=True)
class Round:
    """The argument of the server's hooks at the end of a round.

    Attributes:
        info, model: as for clients.
        params, stats: global model at the start of the round.
        mean_delta: weighted mean of ``local - start``.
        mean_stats: weighted mean of the running statistics.
        weights: float32 ``[M]``, the normalised results of ``weight``, with sum 1.
        ids: int32 ``[M]``, the indices of the clients.
        num_samples: float32 ``[M]``.
        num_steps: int32 ``[M]``.
        class_counts: float32 ``[M, C]``.
        stacked: uploaded statistics ``[M, ...]``.
        summed: uploaded sums.
        client_params, client_stats: ``[M, ...]`` if the method sets ``needs_client_models``.
        state: the method's server state.
        round, lr, key: as for clients, but with the server's key.
        labelled: the server's labelled data ``(x [a, ...], labels [a])``, or None.
        unlabelled: the server's unlabelled data ``x [u, ...]``, or None.
    """

    info: RunInfo
    model: Model
    params: PyTree
    stats: PyTree
    mean_delta: PyTree
    mean_stats: PyTree
    weights: jax.Array
    ids: jax.Array
    num_samples: jax.Array
    num_steps: jax.Array
    class_counts: jax.Array
    stacked: PyTree
    summed: PyTree
    client_params: PyTree
    client_stats: PyTree
    state: PyTree
    round: jax.Array
    lr: jax.Array
    key: jax.Array
    labelled: Any
    unlabelled: Any


class ServerResult(NamedTuple):
    """The next global model and the method's next server state."""

    params: PyTree
    stats: PyTree
    state: PyTree


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The argument of ``eval_model``: the global model, all clients' data and the server's state.

    Attributes:
        info, model, params, stats, state, key: as in ``Round``.
        sum_clients: ``sum_clients(fn)`` returns the sum of ``fn(client)`` over all clients.
        final: bool, True after the last round.
    """

    info: RunInfo
    model: Model
    params: PyTree
    stats: PyTree
    state: PyTree
    key: jax.Array
    sum_clients: Callable[[Callable[[Client], PyTree]], PyTree]
    final: jax.Array


@dataclasses.dataclass(frozen=True)
class NextPhase:
    """A later phase of a method, with its own state and possibly another model.

    Attributes:
        rounds: the number of rounds of the preceding phase.
        method: the method of the next phase.
        model: ``Model -> Model``, the model of the next phase.
        transition: ``(context, params, stats, server) -> (params, stats)`` for one seed;
            ``context`` and ``server`` are those of the phase that ends.
    """

    rounds: int
    method: "Method"
    model: Callable[[Model], Model]
    transition: Callable[[InitContext, PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Method:
    """A federated method; every field except the name defaults to FedAvg's behaviour.

    It is a pytree whose leaves are the numbers that its hooks bind with ``jax.tree_util.Partial``;
    everything else is static.

    Attributes:
        name: the name in the registry.
        loss: ``LossContext -> scalar``, replaces the mean cross-entropy.
        regularizer: ``LossContext -> scalar``, is added to the loss.
        scratch: ``Client -> pytree``, the initial temporary variables of a local training.
        update_scratch: ``LossContext -> pytree``, the scratch after a batch.
        correct_gradient: ``(gradient, params, Client) -> gradient``.
        trainable: ``(Client, step) -> mask`` with one bool per parameter leaf. Where it is False,
            neither gradients nor weight decay nor momentum change the parameters.
        step: ``Step -> StepResult``, replaces the local step.
        num_batches: the number of batches that one step uses.
        optimizer: optax transformation that replaces momentum. It is applied after clipping and
            weight decay and before the learning rate; its updates are subtracted.
        keep_optimizer_state: whether clients keep the optimiser's state between rounds.
        balanced_batches: whether to draw each sample of a batch by first drawing one of the
            client's classes uniformly and then one of its samples with replacement. The number of
            draws per epoch is the client's number of samples.
        start: ``Client -> (params, stats)``, the model from which local training starts.
        before_training: ``Client -> pytree``, is computed before local training and passed to
            ``make_upload``.
        make_upload: ``(Client, LocalResult) -> Upload``.
        weight: ``(Client, LocalResult) -> scalar``, the aggregation weight; ``num_samples`` by
            default.
        update_server_state: ``Round -> server state``, is called before ``server``.
        server: ``Round -> ServerResult``, replaces the weighted mean.
        init: ``InitContext -> MethodState``.
        eval_model: ``Evaluation -> pytree``, the argument of ``predict``; ``(params, stats)`` by
            default.
        predict: ``(Model, pytree, x) -> Outputs`` of the evaluated model.
        personal: ``Client -> (params, stats)``, the client's personal model at the start of a
            round.
        next_phase: the phase that follows this one.
        model: ``Model -> Model``, wraps the configured model.
        needs_linear_head: whether the method computes logits with ``models.functional.head`` or
            changes ``params["head"]``, so that another method's ``model`` cannot replace the head.
        needs_blocks: whether the method reads ``Outputs.blocks``.
        needs_client_models: whether the server needs every client's model.
        needs_labelled_data: whether the server needs labelled data.
        needs_unlabelled_data: whether the server needs unlabelled data.
        head_bias: False if the method needs a head without bias.
        projection: width of the projection head that the method needs, or 0.
        local_steps: number of local steps that replaces the configured one, or 0.
        uses_total_rounds: whether results depend on ``RunInfo.rounds``, in which case a resumed run
            may not change it.
    """

    name: str
    loss: Callable[[LossContext], jax.Array] | None = None
    regularizer: Callable[[LossContext], jax.Array] | None = None
    scratch: Callable[[Client], PyTree] | None = None
    update_scratch: Callable[[LossContext], PyTree] | None = None
    correct_gradient: Callable[[PyTree, PyTree, Client], PyTree] | None = None
    trainable: Callable[[Client, jax.Array], PyTree] | None = None
    step: Callable[[Step], StepResult] | None = None
    num_batches: int = 1
    optimizer: optax.GradientTransformation | None = None
    keep_optimizer_state: bool = False
    balanced_batches: bool = False
    start: Callable[[Client], tuple[PyTree, PyTree]] | None = None
    before_training: Callable[[Client], PyTree] | None = None
    make_upload: Callable[[Client, LocalResult], Upload] | None = None
    weight: Callable[[Client, LocalResult], jax.Array] | None = None
    update_server_state: Callable[[Round], PyTree] | None = None
    server: Callable[[Round], ServerResult] | None = None
    init: Callable[[InitContext], MethodState] | None = None
    eval_model: Callable[[Evaluation], PyTree] | None = None
    predict: Callable[[Model, PyTree, jax.Array], Outputs] | None = None
    personal: Callable[[Client], tuple[PyTree, PyTree]] | None = None
    next_phase: NextPhase | None = None
    model: Callable[[Model], Model] | None = None
    needs_linear_head: bool = False
    needs_blocks: bool = False
    needs_client_models: bool = False
    needs_labelled_data: bool = False
    needs_unlabelled_data: bool = False
    head_bias: bool = True
    projection: int = 0
    local_steps: int = 0
    uses_total_rounds: bool = False

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Separates the hooks that bind numbers from everything else."""
        values = [getattr(self, field.name) for field in dataclasses.fields(self)]
        bound = tuple(v if isinstance(v, jax.tree_util.Partial) else None for v in values)
        static = tuple(None if isinstance(v, jax.tree_util.Partial) else v for v in values)
        return bound, static

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], bound: tuple[Any, ...]) -> "Method":
        """Inverts :meth:`tree_flatten`."""
        return cls(*(s if b is None else b for s, b in zip(static, bound, strict=True)))


def nonzero(**weights: float) -> dict[str, float]:
    """Returns the weights that are not zero, for a hook that binds the weights of its terms."""
    return {name: weight for name, weight in weights.items() if weight}


def masked_mean(values: jax.Array, where: jax.Array) -> jax.Array:
    """Returns the mean of ``values [B]`` over ``where [B]``; 0 if no row is valid."""
    return jnp.sum(jnp.where(where, values, 0.0)) / jnp.maximum(jnp.sum(where), 1)


def uniform(client: Client, result: LocalResult) -> jax.Array:
    """Returns the aggregation weight 1 for every client."""
    return jnp.float32(1.0)


def batch_count(client: Client, result: LocalResult) -> jax.Array:
    """Returns the number of batches per epoch as the aggregation weight."""
    return jnp.ceil(client.num_samples / client.info.batch_size)


def average(rnd: Round) -> ServerResult:
    """Returns the weighted mean of the local models, which is FedAvg's server rule."""
    return ServerResult(optax.tree.add(rnd.params, rnd.mean_delta), rnd.mean_stats, rnd.state)
