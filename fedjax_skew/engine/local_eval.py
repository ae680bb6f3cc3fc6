"""Evaluation of clients' models before and after their local update."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine.evaluate import Scores, TestSet, client_at, score_models
from fedjax_skew.engine.keys import Stream, stream_keys
from fedjax_skew.engine.local import Broadcast
from fedjax_skew.engine.round import RoundSpec, State, run_cohort
from fedjax_skew.engine.target import traced_for_target
from fedjax_skew.methods.base import PyTree, ServerResult
from fedjax_skew.metrics import deviation


class LocalScores(NamedTuple):
    """Test scores ``[S, k, ...]`` before and after the local update, and the deviation bound.

    Attributes:
        before: scores of the model from which each client starts.
        after: scores of the client's model after the update.
        deviating: ``[S, k]``, share of (majority, minority) pairs beyond FedLC's deviation bound
            before the update.
    """

    before: Scores
    after: Scores
    deviating: jax.Array


def local_models(
    spec: RoundSpec, state: State, data: FederatedData, clients: jax.Array
) -> tuple[PyTree, PyTree]:
    """Returns models ``[S, k, ...]`` of the clients ``[k]`` after the next round's training.

    ``state.clients`` holds the rows of these clients.
    """
    # This server returns the stacked client models; everything else is an ordinary round.
    method = dataclasses.replace(
        spec.local.method,
        needs_client_models=True,
        update_server_state=None,
        server=lambda rnd: ServerResult(rnd.client_params, rnd.client_stats, rnd.state),
    )
    info = dataclasses.replace(spec.local.info, cohort_size=clients.shape[0])
    local = dataclasses.replace(spec.local, method=method, info=info)
    spec = dataclasses.replace(spec, local=local)
    cohort = jnp.tile(clients, (len(state.keys), 1))
    after, _ = run_cohort(spec, state, data, cohort)
    return after.params, after.stats


@traced_for_target
def local_scores(
    spec: RoundSpec,
    state: State,
    data: FederatedData,
    test: TestSet,
    clients: jax.Array,
) -> LocalScores:
    """Scores the clients ``[k]`` before and after the local update of the next round."""
    size = clients.shape[0]
    before = score_models(spec, (state.params, state.stats), test)
    before = jax.tree.map(lambda a: jnp.repeat(a[:, None], size, 1), before)
    models = local_models(spec, state, data, clients)
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), models)
    after = jax.tree.map(
        lambda a: a.reshape(-1, size, *a.shape[1:]), score_models(spec, flat, test)
    )
    return LocalScores(before, after, _deviating(spec, state, data, clients))


def _deviating(spec, state: State, data: FederatedData, clients) -> jax.Array:
    client_keys = stream_keys(state.keys, Stream.CLIENT, state.round)

    def one_client(sent, seed, k):
        client = client_at(spec, data, sent, None, seed, k, state.round)

        def add(sums, batch):
            outputs = client.teacher(batch)
            probabilities = jax.nn.softmax(outputs.logits.astype(jnp.float32))
            new = deviation.class_sums(
                outputs.features, probabilities, batch.labels, where=batch.where
            )
            return deviation.merge(sums, new)

        width = sent.params["head"]["kernel"].shape
        zero = deviation.ClassSums(
            jnp.zeros(width[1]), jnp.zeros(width[::-1]), jnp.zeros((width[1], width[1]))
        )
        bound = deviation.deviation_bound(client.fold(add, zero))
        return deviation.deviation_statistics(bound)["deviating"]

    def one_seed(args):
        seed, params, stats, key = args
        sent = Broadcast(params, stats, None, jnp.float32(0), key)
        return jax.lax.map(functools.partial(one_client, sent, seed), clients)

    seeds = jnp.arange(len(state.keys), dtype=jnp.int32)
    return jax.lax.map(one_seed, (seeds, state.params, state.stats, client_keys))


def spread_clients(num_clients: int, number: int) -> jax.Array:
    """Returns ``number`` client indices that are evenly spaced over all clients."""
    number = min(number, num_clients)
    return (jnp.arange(number) * num_clients // max(number, 1)).astype(jnp.int32)
