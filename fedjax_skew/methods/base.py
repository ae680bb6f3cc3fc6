"""What a method is: the parts of a federated round that may differ from FedAvg.

A method is a frozen record of pure functions, each of which may be ``None`` (FedAvg's behaviour):

==============  ============================================================================
objective       ``loss`` replaces cross-entropy, ``regularizer`` is added to it
local rule      ``step`` replaces one optimiser step, ``correct_gradient`` changes its
                gradient, ``trainable`` freezes parameters, ``optimizer`` replaces momentum
client          ``start``, ``before_training`` and ``make_upload`` frame local training
server rule     ``weight`` and ``server`` make the next model; ``update_server_state``
evaluation      ``eval_model`` and ``predict`` for the global model, ``personal`` per client
==============  ============================================================================

``loss``, ``step``, ``optimizer``, ``start``, ``weight``, ``server``, ``model`` and the evaluation
hooks exist once; the others add up, so any objective goes with any local rule and any server rule
(``composition.py``).

State comes in two kinds. ``client`` belongs to one client and is stored with a leading client axis;
``server`` is one pytree that every client may read. ``init`` creates both.
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
    """Numbers of the run that never change, known when the program is traced.

    ``keep_momentum`` says that clients keep the momentum of their last round, and ``sgd`` that they
    run SGD with momentum and no optimiser of the method's or the caller's own. No client has more
    than ``largest_client`` samples.
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
        """Rows of a padded batch: no batch has more samples than the largest client."""
        return min(self.batch_size, self.largest_client)


@dataclasses.dataclass(frozen=True)
class InitContext:
    """What ``init`` may use, for one seed, on the host.

    Attributes:
        info: the run's constants.
        model: the model's pure functions.
        params: initial global parameters.
        stats: initial running statistics.
        class_counts: numpy int32 ``[K, C]``.
        key: PRNG key of this seed for the method.
    """

    info: RunInfo
    model: Model
    params: PyTree
    stats: PyTree
    class_counts: Any
    key: jax.Array


class MethodState(NamedTuple):
    """Initial state of a method: the server's, and the template of one client's (or None)."""

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
        id: int32, this client's number.
        class_counts: float32 ``[C]``, this client's.
        num_samples: float32.
        num_steps: int32, local steps this client takes.
        round: int32, from 0.
        lr: float32, the client learning rate of this round.
        key: PRNG key of (seed, round, client).
        state: this method's state on the client, carried from round to round.
        server: this method's server state, as broadcast.
        fold: ``fold(fn, init, key=None, batches=0, augment=False)`` runs ``carry = fn(carry,
            batch)`` once over the client's data, sorted by class, or shuffled by ``key`` and then
            augmented on request; padded batches leave the carry as it is. A positive number of
            ``batches`` stops it earlier.
        sample_class: ``sample_class(key, c, size)`` draws a ``Batch`` of this client's samples of
            class ``c`` with replacement; ``where`` is False if it has none.
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
        """The round's global model on a batch; no gradient flows through it."""
        outputs, _ = self.model.apply(
            self.params, self.stats, batch.x, train=train, where=batch.where
        )
        return jax.lax.stop_gradient(outputs)


@dataclasses.dataclass(frozen=True)
class LossContext:
    """What an objective sees: one batch of one client.

    Attributes:
        client: the client and its round.
        params: local parameters the gradient is taken at.
        outputs: the local model's logits and features.
        batch: the batch.
        scratch: this method's variables of the running local training.
        step: int32, local step from 0.
        epoch_start: bool, True at the first step of an epoch.
        key: PRNG key of this step.
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
        """Mean of per-example values ``[B]`` over the valid rows."""
        return masked_mean(values, self.batch.where)


class Aux(NamedTuple):
    """By-products of a gradient: objective value, running statistics and scratch afterwards."""

    loss: jax.Array
    stats: PyTree
    scratch: PyTree


@dataclasses.dataclass(frozen=True)
class Step:
    """What a local rule may use.

    Attributes:
        client: the client and its round.
        params: local parameters.
        opt_state: the optimiser's state.
        batches: ``num_batches`` batches.
        scratch: this method's scratch.
        key: PRNG key of this step.
        step: int32, local step from 0.
        stats: local running statistics.
        grad: ``grad(params, batch, stats=stats) -> (gradient, Aux)`` of the whole objective; 0 for
            frozen parameters.
        freeze: sets the entries of frozen parameters to 0, for gradients of another function.
        descend: ``descend(params, gradient, opt_state) -> (params, opt_state)``: corrections,
            clipping, weight decay, momentum and learning rate; frozen parameters stay.
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
    """What a local rule returns; ``scratch`` is this method's own."""

    params: PyTree
    opt_state: PyTree
    scratch: PyTree
    aux: Aux


class LocalResult(NamedTuple):
    """A client after local training.

    Attributes:
        params: local parameters.
        stats: local running statistics.
        start: the parameters it started from.
        scratch: this method's scratch at the end.
        before_training: what ``before_training`` returned.
    """

    params: PyTree
    stats: PyTree
    start: PyTree
    scratch: PyTree
    before_training: PyTree


class Upload(NamedTuple):
    """What a client leaves behind.

    Attributes:
        state: its new state (None leaves it unchanged).
        stacked: small statistics, seen by the server with a leading ``[M]`` axis.
        summed: large statistics, seen by the server as their plain sum over the cohort.
    """

    state: PyTree = None
    stacked: PyTree = None
    summed: PyTree = None


@dataclasses.dataclass(frozen=True)
class Round:
    """What the server sees at the end of a round.

    Attributes:
        info, model: as for clients.
        params, stats: global model at the start of the round.
        mean_delta: weighted mean of ``local - start``.
        mean_stats: weighted mean of the running statistics.
        weights: float32 ``[M]``, sum 1, from ``weight``.
        ids: int32 ``[M]``.
        num_samples: float32 ``[M]``.
        num_steps: int32 ``[M]``.
        class_counts: float32 ``[M, C]``.
        stacked: uploaded statistics ``[M, ...]``.
        summed: uploaded sums.
        client_params, client_stats: ``[M, ...]`` if the method asks for ``needs_client_models``.
        state: this method's server state.
        round, lr, key: as for clients; the key is the server's.
        labelled: ``(x [a, ...], labels [a])`` of the server, or None.
        unlabelled: ``x [u, ...]`` of the server, or None.
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
    """What ``eval_model`` may use: the global model, all clients' data, the server's state.

    Attributes:
        info, model, params, stats, state, key: as in ``Round``.
        sum_clients: ``sum_clients(fn)`` adds ``fn(client)`` up over all clients.
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
    """A later phase of a method with another state, and perhaps another model.

    Attributes:
        rounds: how many rounds the phase before it lasts.
        method: the method of the next phase.
        model: ``model(model) -> Model`` of the next phase.
        transition: ``(context, params, stats, server) -> (params, stats)`` for one seed;
            ``context`` and ``server`` are those of the phase that ends.
    """

    rounds: int
    method: "Method"
    model: Callable[[Model], Model]
    transition: Callable[[InitContext, PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]


@dataclasses.dataclass(frozen=True)
class Method:
    """A federated method; every field but the name may stay at FedAvg's default.

    Attributes:
        name: as in the registry.
        loss: ``LossContext -> scalar``, in place of mean cross-entropy.
        regularizer: ``LossContext -> scalar``, added to the loss.
        scratch: ``Client -> pytree``, variables of one local training.
        update_scratch: ``LossContext -> pytree``, the scratch after a batch.
        correct_gradient: ``(gradient, params, Client) -> gradient``.
        trainable: ``(Client, step) -> mask`` with a bool for every parameter leaf; where it is
            False, neither gradients, weight decay nor momentum move the parameters.
        step: ``Step -> StepResult``.
        num_batches: batches one step takes.
        optimizer: optax transformation in place of momentum, between clipping and weight decay on
            one side and the learning rate on the other; its updates are subtracted.
        keep_optimizer_state: clients keep the optimiser's state between rounds.
        balanced_batches: every sample of a batch is drawn with replacement from a class drawn
            uniformly among those the client has; an epoch has as many draws as samples.
        start: ``Client -> (params, stats)`` local training starts from.
        before_training: ``Client -> pytree``, computed before local training for ``make_upload``.
        make_upload: ``(Client, LocalResult) -> Upload``.
        weight: ``(Client, LocalResult) -> scalar`` aggregation weight, in place of ``num_samples``.
        update_server_state: ``Round -> server state``, before ``server``.
        server: ``Round -> ServerResult``.
        init: ``InitContext -> MethodState``.
        eval_model: ``Evaluation -> pytree`` handed to ``predict``, in place of
            ``(params, stats)``.
        predict: ``(Model, pytree, x) -> Outputs`` of the evaluated model.
        personal: ``Client -> (params, stats)`` of the client's own model, as if a round began.
        next_phase: a later phase.
        model: ``Model -> Model``, the method's own model around the configured one.
        needs_linear_head: the method computes logits by ``models.functional.head``, or changes
            ``params["head"]``, so that another method's ``model`` cannot replace it.
        needs_blocks: the method reads ``Outputs.blocks``.
        needs_client_models: the server needs every client's model.
        needs_labelled_data: the server needs labelled data.
        needs_unlabelled_data: the server needs unlabelled data.
        head_bias: False if the method needs a head without bias.
        projection: width of the projection head the method needs, or 0.
        local_steps: local steps of the method itself, in place of the configuration's, or 0.
        uses_total_rounds: rounds depend on ``RunInfo.rounds``, which a resumed run may not change.
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


def masked_mean(values: jax.Array, where: jax.Array) -> jax.Array:
    """Mean of ``values [B]`` over ``where [B]``; 0 if no row is valid."""
    return jnp.sum(jnp.where(where, values, 0.0)) / jnp.maximum(jnp.sum(where), 1)


def uniform(client: Client, result: LocalResult) -> jax.Array:
    """Aggregation weight 1 for every client."""
    return jnp.float32(1.0)


def batch_count(client: Client, result: LocalResult) -> jax.Array:
    """Aggregation weight by the number of batches in an epoch."""
    return jnp.ceil(client.num_samples / client.info.batch_size)


def average(rnd: Round) -> ServerResult:
    """FedAvg's server: the weighted mean of the local models."""
    return ServerResult(optax.tree.add(rnd.params, rnd.mean_delta), rnd.mean_stats, rnd.state)
