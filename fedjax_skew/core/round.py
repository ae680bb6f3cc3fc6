"""One round as a pure function, and many rounds as one program.

    key -> cohort -> local training (vmap over a chunk, scan over chunks, shard_map over devices)
        -> weighted reduction (psum) -> server rule -> next state

Sums are reduced chunk by chunk, so memory is O(chunk) unless a method asks for every client model.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_skew import trees
from fedjax_skew.core.cohort import sample_cohort, schedule
from fedjax_skew.core.kept import BY_CLIENT, put_rows, take_rows
from fedjax_skew.core.keys import Stream, stream_keys
from fedjax_skew.core.local import (
    Broadcast,
    ClientOutput,
    Item,
    Kept,
    LocalWork,
    Trips,
    train_client,
)
from fedjax_skew.core.reduction import RoundReport, Sums, round_report, sum_chunk
from fedjax_skew.data.federated import FederatedData
from fedjax_skew.methods.base import PyTree, Round, average


class State(NamedTuple):
    """Everything a run carries from round to round.

    Attributes:
        params: global parameters ``[S, ...]``.
        stats: running statistics ``[S, ...]``.
        server: the method's server state ``[S, ...]``.
        kept: ``Kept``, the clients' state ``[S, K, ...]``; see ``core.kept``.
        round: int32, rounds done.
    """

    params: PyTree
    stats: PyTree
    server: PyTree
    kept: PyTree
    round: jax.Array


def state_shardings(mesh: Mesh) -> State:
    """Where a state lives: kept rows are divided over the devices, all else is on each of them."""
    everywhere: Any = NamedSharding(mesh, P())
    kept = NamedSharding(mesh, BY_CLIENT)
    return State(everywhere, everywhere, everywhere, kept, everywhere)


@dataclasses.dataclass(frozen=True)
class RoundWork:
    """How rounds run.

    Attributes:
        local: how clients train.
        mesh: devices, with one axis ``clients``.
        clients_per_chunk: clients trained together on a device.
        schedule: ``round -> client learning rate``.
        stop_nonfinite: leave the loop over rounds when a result is not finite.
    """

    local: LocalWork
    mesh: Mesh
    clients_per_chunk: int
    schedule: Callable[[Any], Any]
    stop_nonfinite: bool = True


def run_rounds(
    work: RoundWork,
    length: int,
    state: State,
    data: FederatedData,
    keys: jax.Array,
    until: jax.Array,
) -> tuple[State, RoundReport]:
    """Runs rounds up to ``until`` (at most ``length`` of them) in one program.

    Args:
        work: how rounds run.
        length: size of the report's leading axis.
        state: where to go on.
        data: the federated dataset.
        keys: one PRNG key a seed ``[S]``.
        until: int32, number of the first round that is not run.

    Returns:
        The new state, and reports ``[length, ...]`` of which the first ``until - state.round`` (or
        up to the first non-finite round) are filled.
    """
    first = state.round
    one_round = jax.jit(functools.partial(run_round, work))
    report = jax.eval_shape(one_round, state, data, keys)[1]
    buffers = jax.tree.map(lambda r: jnp.zeros((length, *r.shape), r.dtype), report)

    def unfinished(carry):
        state, _, fine = carry
        return (state.round < until) & fine

    def body(carry):
        state, buffers, fine = carry
        new, report = one_round(state, data, keys)
        buffers = jax.tree.map(lambda b, r: b.at[state.round - first].set(r), buffers, report)
        if work.stop_nonfinite:
            fine = jnp.all(report.params_finite) & (jnp.sum(report.nonfinite) == 0)
        return new, buffers, fine

    state, buffers, _ = jax.lax.while_loop(unfinished, body, (state, buffers, jnp.bool_(True)))
    return state, buffers


def run_round(
    work: RoundWork, state: State, data: FederatedData, keys: jax.Array
) -> tuple[State, RoundReport]:
    """One round for all seeds: draws the cohort, trains it, updates the server."""
    facts = work.local.facts
    cohort_keys = stream_keys(keys, Stream.COHORT, state.round)
    cohort = sample_cohort(cohort_keys, facts.num_clients, facts.cohort_size)
    return run_kept(work, state, data, keys, cohort)


def run_kept(
    work: RoundWork, state: State, data: FederatedData, keys: jax.Array, cohort: jax.Array
) -> tuple[State, RoundReport]:
    """Trains the clients ``cohort [S, M]``; ``state.kept`` holds all clients' rows."""
    rows = take_rows(work.mesh, state.kept, cohort)
    new, rows, report = run_cohort(work, state._replace(kept=rows), data, keys, cohort)
    return new._replace(kept=put_rows(work.mesh, state.kept, cohort, rows)), report


def run_cohort(
    work: RoundWork, state: State, data: FederatedData, keys: jax.Array, cohort: jax.Array
) -> tuple[State, Kept, RoundReport]:
    """Trains the clients ``cohort [S, M]``; ``state.kept`` holds their rows ``[S, M, ...]``."""
    local = work.local
    num_seeds, size = cohort.shape
    devices = work.mesh.devices.size
    rows = jnp.arange(num_seeds)[:, None]
    num_samples = data.size(rows, cohort)
    steps = local.num_steps(num_samples)
    items, slots, places = schedule(cohort, steps, devices, work.clients_per_chunk)
    lr = jnp.asarray(work.schedule(state.round), jnp.float32)
    broadcast = Broadcast(
        state.params,
        state.stats,
        state.server,
        jnp.broadcast_to(lr, (num_seeds,)),
        stream_keys(keys, Stream.CLIENT, state.round),
    )
    flat = jax.tree.map(lambda k: k.reshape(num_seeds * size, *k.shape[2:]), state.kept)
    dealt = jax.tree.map(lambda k: k[jnp.minimum(slots, num_seeds * size - 1)], flat)

    train = jax.shard_map(
        functools.partial(_train_device, local),
        mesh=work.mesh,
        in_specs=(P("clients"), P("clients"), P(), P(), P()),
        out_specs=(P(), P("clients"), P()),
        check_vma=False,
    )
    sums, outs, executed = train(items, dealt, broadcast, data, state.round)

    def unchunk(o):  # An upload may be empty, so no size is left to be inferred.
        flat = o.reshape(math.prod(o.shape[:3]), *o.shape[3:])
        return flat[places].reshape(num_seeds, size, *o.shape[3:])

    outs = jax.tree.map(unchunk, outs)
    params, stats, server = _server_step(work, state, data, keys, cohort, lr, sums, outs)
    samples = jnp.sum(local.samples_used(num_samples))
    report = round_report(cohort, outs.report, sums, params, steps, executed, samples)
    new = State(params, stats, server, state.kept, state.round + 1)
    return new, outs.kept, report


def _train_device(
    local: LocalWork,
    items: Item,
    kept: Kept,
    broadcast: Broadcast,
    data: FederatedData,
    round_: jax.Array,
) -> tuple[Sums, ClientOutput, jax.Array]:
    """Trains one device's clients; leading axes ``[1, R, c]`` of ``items`` and ``kept``."""
    num_seeds = broadcast.lr.shape[0]
    items, kept = jax.tree.map(lambda a: a[0], (items, kept))
    if num_seeds == 1:
        one, axis = jax.tree.map(lambda a: a[0], broadcast), None
    else:
        one, axis = broadcast, 0

    @jax.jit  # Traced once although its shapes are asked for before it is used.
    def train(items, kept):
        """Clients of one chunk ``[c]``."""
        sizes = data.size(items.seed, items.client)
        passes = -(-jnp.where(items.num_steps > 0, sizes, 0) // local.facts.batch_size)
        trips = Trips(jnp.max(items.num_steps), jnp.max(passes))
        fn = functools.partial(train_client, local, data)
        if items.seed.shape[0] == 1:  # An axis of one client only makes products slower.
            item, own = jax.tree.map(lambda a: a[0], (items, kept))
            sent = one if axis is None else trees.index(one, item.seed)
            return jax.tree.map(lambda a: a[None], fn(sent, own, item, round_, trips))
        sent = one if axis is None else trees.index(one, items.seed)
        return jax.vmap(fn, in_axes=(axis, 0, 0, None, None))(sent, kept, items, round_, trips)

    def body(sums, chunk):
        items, kept = chunk
        out = train(items, kept)
        sums = jax.tree.map(jnp.add, sums, sum_chunk(out, items.seed, num_seeds))
        keep_models = local.method.client_models
        out = out._replace(
            delta=None,
            params=out.params if keep_models else None,
            stats=out.stats if keep_models else None,
            upload=out.upload._replace(summed=None),
        )
        return sums, (out, jnp.max(items.num_steps) * items.num_steps.shape[0])

    shapes = jax.eval_shape(
        lambda items, kept: sum_chunk(train(items, kept), items.seed, num_seeds),
        *jax.tree.map(lambda a: a[0], (items, kept)),
    )
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    sums, (outs, executed) = jax.lax.scan(body, zeros, (items, kept))
    sums, executed = jax.lax.psum((sums, jnp.sum(executed)), "clients")
    return sums, jax.tree.map(lambda a: a[None], outs), executed


def _server_step(
    work: RoundWork,
    state: State,
    data: FederatedData,
    keys: jax.Array,
    cohort: jax.Array,
    lr: jax.Array,
    sums: Sums,
    outs: ClientOutput,
) -> tuple[PyTree, PyTree, PyTree]:
    method, facts = work.local.method, work.local.facts
    server_keys = stream_keys(keys, Stream.SERVER, state.round)

    def one_seed(params, stats, server, cohort, sums, outs, key, counts, labelled, unlabelled):
        total = jnp.maximum(sums.weight, 1e-12)
        trained = sums.weight > 0
        mean_stats = jax.tree.map(lambda s: s / total, sums.stats)
        if jax.tree.structure(mean_stats) == jax.tree.structure(stats):
            mean_stats = jax.tree.map(lambda m, s: jnp.where(trained, m, s), mean_stats, stats)
        rnd = Round(
            facts=facts,
            model=work.local.model,
            params=params,
            stats=stats,
            mean_delta=jax.tree.map(lambda d: d / total, sums.delta),
            mean_stats=mean_stats,
            weights=outs.weight / total,
            ids=cohort,
            num_samples=outs.report.num_samples,
            num_steps=outs.report.num_steps,
            class_counts=counts[cohort].astype(jnp.float32),
            stacked=outs.upload.stacked,
            summed=sums.summed,
            client_params=outs.params,
            client_stats=outs.stats,
            state=server,
            round=state.round,
            lr=lr,
            key=key,
            labelled=data.server_labelled(labelled) if method.labelled else None,
            unlabelled=data.server_unlabelled(unlabelled) if method.unlabelled else None,
        )
        if method.absorb:
            rnd = dataclasses.replace(rnd, state=method.absorb(rnd))
        return tuple((method.server or average)(rnd))

    return jax.vmap(one_seed)(
        state.params,
        state.stats,
        state.server,
        cohort,
        sums,
        outs,
        server_keys,
        data.class_counts,
        data.labelled,
        data.unlabelled,
    )
