"""Local training of one client; the round adds a client axis with ``vmap``.

The clients of a chunk share one trip count, which is the largest of their numbers of steps. Steps
after a client has finished, and padded rows of a batch, change neither parameters nor momentum nor
running statistics.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_skew import trees
from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine.shuffle import permute
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import (
    Aux,
    Batch,
    Client,
    LocalResult,
    LossContext,
    Method,
    PyTree,
    RunInfo,
    Step,
    StepResult,
    Upload,
)
from fedjax_skew.models.functional import Model


@dataclasses.dataclass(frozen=True)
class LocalSpec:
    """The specification of local training, which is the same for all clients.

    It is a pytree whose leaves are those of the method and of the optimiser, which must be a pytree
    such as ``jax.tree_util.Partial``; everything else is static.

    Attributes:
        info: the run's constants.
        model: the model's pure functions.
        method: the method.
        optimizer: ``() -> optax transformation`` without the learning rate.
        local_epochs: number of passes over the client's data, or 0.
        local_steps: number of steps, or 0; exactly one of the two is positive.
        drop_last: whether to omit the partial last batch of an epoch.
        augment: ``(x uint8, key) -> x`` on one batch.
        keep_momentum: whether clients keep the optimiser's state between rounds.
        skip_nonfinite: whether to exclude clients whose result is not finite.
        steps_per_draw: number of local steps whose samples are drawn together. A draw loops until
            all of its positions are found, and an accelerator waits for its host in every such
            loop.
    """

    info: RunInfo
    model: Model
    method: Method
    optimizer: Callable[[], optax.GradientTransformation]
    local_epochs: int
    local_steps: int
    drop_last: bool
    augment: Callable[[jax.Array, jax.Array], jax.Array]
    keep_momentum: bool
    skip_nonfinite: bool
    steps_per_draw: int = 1

    def batches_per_epoch(self, num_samples: jax.Array) -> jax.Array:
        """Returns the number of batches per pass over ``num_samples`` samples, at least one."""
        size = self.info.batch_rows
        full = num_samples // size if self.drop_last else -(-num_samples // size)
        return jnp.maximum(full, 1)

    def num_steps(self, num_samples: jax.Array) -> jax.Array:
        """Returns the number of local steps of a client with ``num_samples`` samples."""
        if self.local_steps:
            return jnp.full_like(num_samples, self.local_steps)
        batches = self.local_epochs * self.batches_per_epoch(num_samples)
        return -(-batches // self.method.num_batches)

    def samples_used(self, num_samples: jax.Array, num_steps: jax.Array) -> jax.Array:
        """Returns the number of samples that a client uses in a number of local steps."""
        per_epoch = self.batches_per_epoch(num_samples)
        size = self.info.batch_rows
        whole = jnp.minimum(per_epoch * size, num_samples)
        batches = num_steps * self.method.num_batches
        rest = jnp.minimum(batches % per_epoch * size, whole)
        return batches // per_epoch * whole + rest


_DATA_FIELDS = ["method", "optimizer"]
jax.tree_util.register_dataclass(
    LocalSpec,
    data_fields=_DATA_FIELDS,
    meta_fields=[f.name for f in dataclasses.fields(LocalSpec) if f.name not in _DATA_FIELDS],
)


class ClientState(NamedTuple):
    """The state that a client keeps between rounds: the method's and the optimiser's."""

    method: PyTree
    optimizer: PyTree


class Broadcast(NamedTuple):
    """The values that every client of one seed receives."""

    params: PyTree
    stats: PyTree
    server: PyTree
    lr: jax.Array
    key: jax.Array


class ClientSlot(NamedTuple):
    """One client of one seed in the cohort; ``num_steps == 0`` marks padding."""

    seed: jax.Array
    client: jax.Array
    num_steps: jax.Array


class LoopBounds(NamedTuple):
    """Loop bounds shared by the clients of a chunk: local steps, and batches per pass."""

    steps: jax.Array
    batches: jax.Array


class ClientReport(NamedTuple):
    """Statistics of one client's training."""

    loss: jax.Array
    delta_norm: jax.Array
    finite: jax.Array
    num_samples: jax.Array
    num_steps: jax.Array


class ClientOutput(NamedTuple):
    """The result of one client's training."""

    delta: PyTree
    params: PyTree
    stats: PyTree
    weight: jax.Array
    client_state: ClientState
    upload: Upload
    report: ClientReport


def make_client(
    spec: LocalSpec,
    data: FederatedData,
    broadcast: Broadcast,
    client_state: PyTree,
    item: ClientSlot,
    round_: jax.Array,
    batch_trips: jax.Array,
) -> Client:
    """Returns the client's view of a round; ``batch_trips`` bounds its loops over the data."""
    counts = data.class_counts[item.seed, item.client]
    offset = data.start(item.seed, item.client)
    num_samples = data.size(item.seed, item.client)
    size = spec.info.batch_rows

    def fold(fn, init, key=None, batches=0, augment=False):
        def body(b, carry):
            position = b * size + jnp.arange(size)
            where = position < num_samples
            at = jnp.minimum(position, num_samples - 1)
            if key is not None:
                at = permute(key, position, num_samples)
            ids = data.order[item.seed, offset + at]
            x = spec.augment(data.x[ids], jax.random.fold_in(key, b)) if augment else data.x[ids]
            new = fn(carry, Batch(x, data.labels[ids], where))
            return trees.select(b * size < num_samples, new, carry)

        bounds = jnp.minimum(batch_trips, batches) if batches else batch_trips
        with jax.named_scope("batches"):
            return jax.lax.fori_loop(0, bounds, body, init)

    def sample_class(key, c, size):
        first = jnp.cumsum(counts)[c] - counts[c]
        draw = jax.random.randint(key, (size,), 0, jnp.maximum(counts[c], 1))
        ids = data.order[item.seed, offset + jnp.minimum(first + draw, num_samples - 1)]
        return Batch(data.x[ids], data.labels[ids], jnp.broadcast_to(counts[c] > 0, (size,)))

    return Client(
        info=spec.info,
        model=spec.model,
        params=broadcast.params,
        stats=broadcast.stats,
        id=item.client,
        class_counts=counts.astype(jnp.float32),
        num_samples=num_samples.astype(jnp.float32),
        num_steps=item.num_steps,
        round=round_,
        lr=broadcast.lr,
        key=jax.random.fold_in(broadcast.key, item.client),
        state=client_state,
        server=broadcast.server,
        fold=fold,
        sample_class=sample_class,
    )


def train_client(
    spec: LocalSpec,
    data: FederatedData,
    broadcast: Broadcast,
    client_state: ClientState,
    item: ClientSlot,
    round_: jax.Array,
    bounds: LoopBounds,
    *,
    alone: bool = False,
) -> ClientOutput:
    """Trains one client and computes its upload.

    Args:
        spec: the specification of local training.
        data: the federated dataset.
        broadcast: the values that the server sent to the clients of this seed.
        client_state: the state that the client carries from round to round.
        item: the client and its seed.
        round_: int32, the index of the round, from 0.
        bounds: loop bounds shared by the chunk.
        alone: whether the chunk has no other client, so that no step is padding.
    """
    method, info = spec.method, spec.info
    client = make_client(spec, data, broadcast, client_state.method, item, round_, bounds.batches)
    offset = data.start(item.seed, item.client)
    num_samples = data.size(item.seed, item.client)
    per_epoch = spec.batches_per_epoch(num_samples)

    step_key = jax.random.fold_in(client.key, 2**31 - 1)

    def batch_key(t, i):
        return jax.random.fold_in(jax.random.fold_in(step_key, t), i)

    def positions(t, i):
        """Returns the positions ``[B]`` of batch ``i`` of step ``t`` in its epoch."""
        index = t * method.num_batches + i
        return index % per_epoch * info.batch_rows + jnp.arange(info.batch_rows)

    def draw(t):
        """Draws the samples of a step, as positions ``[num_batches, B]`` in the client's data."""

        def one(i):
            if method.balanced_batches:
                key, _ = jax.random.split(batch_key(t, i))
                return _draw_balanced(key, client.class_counts, info.batch_rows)
            epoch = (t * method.num_batches + i) // per_epoch
            return permute(client.key, positions(t, i), num_samples, epoch)

        return jnp.stack([one(i) for i in range(method.num_batches)])

    def fetch(t, i, at):
        key = batch_key(t, i)
        if method.balanced_batches:
            _, key = jax.random.split(key)
        ids = data.order[item.seed, offset + at]
        where = positions(t, i) < num_samples
        return Batch(spec.augment(data.x[ids], key), data.labels[ids], where)

    before_training = method.before_training(client) if method.before_training else None
    start, start_stats = method.start(client) if method.start else (client.params, client.stats)
    opt_state = client_state.optimizer if spec.keep_momentum else spec.optimizer().init(start)
    scratch = method.scratch(client) if method.scratch else None

    def body(drawn, t, carry):
        params, stats, opt_state, scratch, loss = carry
        key = jax.random.fold_in(step_key, t)
        at = drawn(t)
        batches = tuple(fetch(t, i, at[i]) for i in range(method.num_batches))
        result = local_step(
            spec, client, params, stats, opt_state, scratch, batches, t, per_epoch, key
        )
        new = (result.params, result.aux.stats, result.opt_state, result.scratch)
        if alone:
            return *new, loss + result.aux.loss
        active = t < item.num_steps
        new = trees.select(active, new, (params, stats, opt_state, scratch))
        return *new, loss + jnp.where(active, result.aux.loss, 0.0)

    init = (start, start_stats, opt_state, scratch, jnp.float32(0))
    params, stats, opt_state, scratch, loss = _loop(
        spec.steps_per_draw, bounds.steps, draw, body, init
    )
    result = LocalResult(params, stats, start, scratch, before_training)
    loss = loss / jnp.maximum(item.num_steps, 1)
    return _output(spec, client, result, start_stats, client_state, opt_state, loss)


def _loop(
    steps_per_draw: int,
    steps: jax.Array,
    draw: Callable[[jax.Array], jax.Array],
    body: Callable[..., PyTree],
    init: PyTree,
) -> PyTree:
    """Runs ``body(drawn, t, carry)`` for all steps; ``drawn(t)`` equals ``draw(t)``."""
    if steps_per_draw == 1:
        with jax.named_scope("steps"):
            return jax.lax.fori_loop(0, steps, functools.partial(body, draw), init)

    def block(b, carry):
        first = b * steps_per_draw
        ahead = jax.vmap(draw)(first + jnp.arange(steps_per_draw))
        last = jnp.minimum(first + steps_per_draw, steps)
        taken = functools.partial(body, lambda t: ahead[t - first])
        with jax.named_scope("steps"):
            return jax.lax.fori_loop(first, last, taken, carry)

    with jax.named_scope("draws"):
        return jax.lax.fori_loop(0, -(-steps // steps_per_draw), block, init)


def local_step(
    spec: LocalSpec,
    client: Client,
    params: PyTree,
    stats: PyTree,
    opt_state: PyTree,
    scratch: PyTree,
    batches: tuple[Batch, ...],
    t: jax.Array,
    per_epoch: jax.Array,
    key: jax.Array,
) -> StepResult:
    """Takes one step of the method's local rule on the method's objective."""
    method = spec.method
    mask = method.trainable(client, t) if method.trainable else None

    def freeze(tree):
        return tree if mask is None else jax.tree.map(lambda m, a: jnp.where(m, a, 0.0), mask, tree)

    def objective(params, batch, stats):
        outputs, new_stats = spec.model.apply(params, stats, batch.x, train=True, where=batch.where)
        context = LossContext(
            client=client,
            params=params,
            outputs=outputs,
            batch=batch,
            scratch=scratch,
            step=t,
            epoch_start=(t * method.num_batches) % per_epoch < method.num_batches,
            key=key,
        )
        if method.loss:
            loss = method.loss(context)
        else:
            loss = context.mean(cross_entropy(outputs.logits, batch.labels))
        if method.regularizer:
            loss = loss + method.regularizer(context)
        after = method.update_scratch(context) if method.update_scratch else scratch
        return loss, Aux(loss, new_stats, jax.lax.stop_gradient(after))

    def grad(params, batch, stats=stats):
        gradient, aux = jax.grad(objective, has_aux=True)(params, batch, stats)
        return freeze(gradient), aux

    def descend(params, gradient, opt_state):
        if method.correct_gradient:
            gradient = method.correct_gradient(gradient, params, client)
        updates, opt_state = spec.optimizer().update(freeze(gradient), opt_state, freeze(params))
        updates = freeze(updates)
        return jax.tree.map(lambda p, u: p - client.lr * u, params, updates), opt_state

    if method.step:
        return method.step(
            Step(client, params, opt_state, batches, scratch, key, t, stats, grad, freeze, descend)
        )
    gradient, aux = grad(params, batches[0])
    params, opt_state = descend(params, gradient, opt_state)
    return StepResult(params, opt_state, aux.scratch, aux)


def _draw_balanced(key: jax.Array, class_counts: jax.Array, size: int) -> jax.Array:
    """Draws ``size`` positions in a client's data, each by first drawing a class, then a row."""
    class_key, row_key = jax.random.split(key)
    counts = class_counts.astype(jnp.int32)
    held = jnp.where(counts > 0, 0.0, -jnp.inf)
    classes = jax.random.categorical(class_key, held, shape=(size,))
    rows = jax.random.randint(row_key, (size,), 0, jnp.maximum(counts[classes], 1))
    return (jnp.cumsum(counts) - counts)[classes] + rows


def _output(
    spec: LocalSpec,
    client: Client,
    result: LocalResult,
    start_stats: PyTree,
    client_state: ClientState,
    opt_state: PyTree,
    loss: jax.Array,
) -> ClientOutput:
    method = spec.method
    real = client.num_steps > 0
    upload = method.make_upload(client, result) if method.make_upload else Upload()
    weight = method.weight(client, result) if method.weight else client.num_samples
    delta = optax.tree.sub(result.params, result.start)
    norm = optax.tree.norm(delta)
    finite = jnp.isfinite(norm) & jnp.isfinite(loss) | ~real
    use = real & finite if spec.skip_nonfinite else real
    method_state = (
        client_state.method
        if upload.state is None
        else trees.select(use, upload.state, client_state.method)
    )
    optimizer_state = (
        trees.select(use, opt_state, client_state.optimizer)
        if spec.keep_momentum
        else client_state.optimizer
    )
    zero = optax.tree.zeros_like((delta, upload.summed, upload.stacked))
    delta, summed, stacked = trees.select(use, (delta, upload.summed, upload.stacked), zero)
    return ClientOutput(
        delta=delta,
        params=trees.select(use, result.params, result.start),
        stats=trees.select(use, result.stats, start_stats),
        weight=jnp.where(use, weight, 0.0),
        client_state=ClientState(method_state, optimizer_state),
        upload=Upload(None, stacked, summed),
        report=ClientReport(loss, norm, finite, client.num_samples, client.num_steps),
    )
