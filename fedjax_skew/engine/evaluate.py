"""Evaluation on a whole test set, which is padded and sharded over devices.

Scores are confusion matrices ``[S, C, C]``, whose rows are the true classes, so that most metrics
can be computed afterwards without running a model again.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine.keys import Stream, stream_keys
from fedjax_skew.engine.local import Broadcast, ClientSlot, make_client
from fedjax_skew.engine.round import RoundSpec, State
from fedjax_skew.engine.target import traced_for_target
from fedjax_skew.losses import cross_entropy
from fedjax_skew.methods.base import Client, Evaluation, PyTree
from fedjax_skew.metrics.classification import confusion_matrix


class TestSet(NamedTuple):
    """Samples in padded batches ``[D, n, B, ...]``; ``where`` is False for padding."""

    x: jax.Array
    labels: jax.Array
    where: jax.Array


class Scores(NamedTuple):
    """Confusion counts ``[..., C, C]`` and the mean cross-entropy ``[...]``."""

    confusion: jax.Array
    loss: jax.Array


class ClientScores(NamedTuple):
    """Scores ``[S, k, ...]`` of personal models on the test set and on the clients' own sets."""

    test: Scores
    holdout: Scores | None


def batches(x: np.ndarray, labels: np.ndarray, batch_size: int, num_devices: int) -> TestSet:
    """Divides a set into equal batches for every device, as numpy arrays on the host."""
    size = min(batch_size, -(-len(x) // num_devices))
    count = -(-len(x) // (size * num_devices))
    padded = size * num_devices * count

    def cut(a):
        a = np.concatenate([a, np.zeros((padded - len(a), *a.shape[1:]), a.dtype)])
        return a.reshape(num_devices, count, size, *a.shape[1:])

    return TestSet(cut(x), cut(labels.astype(np.int32)), cut(np.ones(len(x), bool)))


def evaluate(
    spec: RoundSpec,
    state: State,
    data: FederatedData,
    sets: tuple[TestSet, ...],
    final: jax.Array,
) -> tuple[Scores, ...]:
    """Returns scores ``[S, ...]`` of the method's evaluated model on each of the sets."""
    return score_sets(spec, eval_models(spec, state, data, final), sets)


@traced_for_target
def score_sets(spec: RoundSpec, models: PyTree, sets: tuple[TestSet, ...]) -> tuple[Scores, ...]:
    """Returns scores ``[S, ...]`` of evaluated models ``[S, ...]`` on each of the sets."""
    return tuple(_score(spec, models, test) for test in sets)


@traced_for_target
def evaluate_clients(
    spec: RoundSpec,
    state: State,
    data: FederatedData,
    sets: tuple[TestSet, TestSet | None],
    clients: jax.Array,
) -> ClientScores:
    """Scores the personal models of the clients ``[k]``.

    Args:
        spec: the specification of rounds.
        state: the state, whose ``clients`` holds the rows ``[S, k, ...]`` of these clients.
        data: the federated dataset.
        sets: the test set, and the clients' own sets ``[S, k, n, B, ...]`` or None.
        clients: indices of the clients.
    """
    test, holdout = sets
    personal = spec.local.method.personal
    assert personal is not None
    lr = jnp.asarray(spec.lr_schedule(state.round), jnp.float32)

    def one_seed(args):
        seed, params, stats, server, client_state, key = args
        sent = Broadcast(params, stats, server, lr, key)

        def one(args):
            k, client_state = args
            return personal(client_at(spec, data, sent, client_state, seed, k, state.round))

        return jax.lax.map(one, (clients, client_state))

    seeds = jnp.arange(len(state.keys), dtype=jnp.int32)
    client_keys = stream_keys(state.keys, Stream.CLIENT, state.round)
    models = jax.lax.map(
        one_seed,
        (seeds, state.params, state.stats, state.server, state.clients.method, client_keys),
    )
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), models)
    size = clients.shape[0]
    on_test = jax.tree.map(
        lambda a: a.reshape(-1, size, *a.shape[1:]), score_models(spec, flat, test)
    )
    return ClientScores(
        on_test, None if holdout is None else score_holdout(spec, models, holdout, personal=True)
    )


@traced_for_target
def score_holdout(
    spec: RoundSpec, models: PyTree, sets: TestSet, *, personal: bool = False
) -> Scores:
    """Returns scores ``[S, k, ...]`` on the clients' own sets ``[S, k, n, B, ...]``.

    Args:
        spec: the specification of rounds.
        models: evaluated models ``[S, ...]``, or personal models ``[S, k, ...]``.
        sets: one padded set per client.
        personal: whether ``models`` are personal models.
    """

    def one_client(args):
        one, test = args
        counts, loss = _count(spec, one, test, plain=personal)
        return counts, loss / jnp.maximum(jnp.sum(test.where), 1)

    def one_seed(args):
        models, sets = args
        if personal:
            return jax.lax.map(one_client, (models, sets))
        return jax.lax.map(lambda test: one_client((models, test)), sets)

    return Scores(*jax.lax.map(one_seed, (models, sets)))


def client_at(
    spec: RoundSpec,
    data: FederatedData,
    sent: Broadcast,
    client_state: PyTree,
    seed: jax.Array,
    k: jax.Array,
    round_: jax.Array,
) -> Client:
    """Returns client ``k`` of a seed outside of a round; it can read its data but not train."""
    bounds = -(-data.size(seed, k) // spec.local.info.batch_rows)
    return make_client(
        spec.local, data, sent, client_state, ClientSlot(seed, k, jnp.int32(0)), round_, bounds
    )


def score_models(spec: RoundSpec, models: PyTree, test: TestSet) -> Scores:
    """Scores stacked ``(params, stats)`` ``[n, ...]`` without the method's own prediction."""
    return _score(spec, models, test, plain=True)


@traced_for_target
def eval_models(spec: RoundSpec, state: State, data: FederatedData, final: jax.Array) -> PyTree:
    """Returns the models ``[S, ...]`` that the method evaluates, by default ``(params, stats)``."""
    method, info = spec.local.method, spec.local.info
    if method.eval_model is None:
        return state.params, state.stats
    eval_keys = stream_keys(state.keys, Stream.EVALUATE, state.round)
    client_keys = stream_keys(state.keys, Stream.CLIENT, state.round)

    def one_seed(args):
        seed, params, stats, server, key, client_key = args
        sent = Broadcast(params, stats, server, jnp.float32(0), client_key)

        def sum_clients(fn):
            if data.x is None:
                raise ValueError(
                    f"method={method.name!r} evaluates with the data of all clients, which "
                    "dataset.placement='host' does not put on the device; it must be 'device'."
                )

            def at(k):
                return fn(client_at(spec, data, sent, None, seed, k, state.round))

            zero = jax.tree.map(
                lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(at, jnp.int32(0))
            )
            return jax.lax.fori_loop(
                0, info.num_clients, lambda k, acc: jax.tree.map(jnp.add, acc, at(k)), zero
            )

        return method.eval_model(
            Evaluation(info, spec.local.model, params, stats, server, key, sum_clients, final)
        )

    seeds = jnp.arange(len(state.keys), dtype=jnp.int32)
    return jax.lax.map(
        one_seed, (seeds, state.params, state.stats, state.server, eval_keys, client_keys)
    )


def _score(spec: RoundSpec, eval_model: PyTree, test: TestSet, plain: bool = False) -> Scores:
    """Scores stacked models ``[S, ...]``; ``plain`` ignores the method's own prediction."""

    def on_device(eval_model, test):
        test = jax.tree.map(lambda a: a[0], test)
        counts, loss = jax.lax.map(lambda one: _count(spec, one, test, plain), eval_model)
        return jax.lax.psum((counts, loss, jnp.sum(test.where)), "clients")

    counts, loss, total = jax.shard_map(
        on_device, mesh=spec.mesh, in_specs=(P(), P("clients")), out_specs=P(), check_vma=False
    )(eval_model, test)
    return Scores(counts, loss / total)


def _count(spec: RoundSpec, one: PyTree, test: TestSet, plain: bool) -> tuple[jax.Array, jax.Array]:
    """Returns confusion counts ``[C, C]`` and the summed loss on batches ``[n, B, ...]``."""
    model, predict = spec.local.model, spec.local.method.predict
    num_classes = spec.local.info.num_classes

    def forward(x):
        if predict is None or plain:
            return model.apply(*one, x)[0]
        return predict(model, one, x)

    def batch(carry, rows):
        logits = forward(rows.x).logits.astype(jnp.float32)
        guess = jnp.argmax(logits, -1)
        counts = confusion_matrix(rows.labels, guess, num_classes, rows.where)
        loss = jnp.where(rows.where, cross_entropy(logits, rows.labels), 0.0)
        return (carry[0] + counts, carry[1] + jnp.sum(loss)), None

    init = jnp.zeros((num_classes, num_classes), jnp.int32), jnp.float32(0)
    return jax.lax.scan(batch, init, test)[0]
