"""A round as a pure function, and several rounds as one program.

    key -> cohort -> local training (vmap over a chunk, scan over chunks, shard_map over devices)
        -> weighted reduction (psum) -> server rule -> next state

Sums are reduced chunk by chunk, so that memory is O(chunk) unless a method needs the models of all
clients.
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
from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine.client_state import BY_CLIENT, collect_clients, deal_clients
from fedjax_skew.engine.cohort import (
    assign_clients,
    sample_cohort,
    steps_taken,
    weights_of_round,
)
from fedjax_skew.engine.keys import Stream, stream_keys
from fedjax_skew.engine.local import (
    Broadcast,
    ClientOutput,
    ClientSlot,
    ClientState,
    LocalSpec,
    LoopBounds,
    train_client,
)
from fedjax_skew.engine.mesh import sum_over_devices
from fedjax_skew.engine.reduction import RoundReport, Sums, round_report, sum_chunk
from fedjax_skew.engine.target import Target, traced_for_target
from fedjax_skew.methods.base import PyTree, Round, average


class State(NamedTuple):
    """Everything that a run carries from round to round.

    Attributes:
        params: global parameters ``[S, ...]``.
        stats: running statistics ``[S, ...]``.
        server: the method's server state ``[S, ...]``.
        clients: ``ClientState`` of all clients ``[S, K, ...]``; see ``engine.client_state``.
        round: int32, number of rounds done.
        keys: raw PRNG keys ``[S, 2]``, one per seed, which never change; see ``engine.keys``.
    """

    params: PyTree
    stats: PyTree
    server: PyTree
    clients: PyTree
    round: jax.Array
    keys: jax.Array


def state_shardings(mesh: Mesh) -> State:
    """Returns the shardings of a state: client state is divided, everything else replicated."""
    everywhere: Any = NamedSharding(mesh, P())
    client_state = NamedSharding(mesh, BY_CLIENT)
    return State(everywhere, everywhere, everywhere, client_state, everywhere, everywhere)


@dataclasses.dataclass(frozen=True)
class RoundSpec:
    """The specification of rounds.

    It is a pytree whose leaves are those of ``local`` and of ``lr_schedule``, which must be a
    pytree such as ``jax.tree_util.Partial``; everything else is static. A program that takes the
    specification as an argument can therefore be used for any learning rate, for any numbers of the
    optimiser, and for any numbers that the method's hooks bind.

    Attributes:
        local: the specification of local training.
        mesh: devices, with one axis ``clients``.
        target: the kind of device for which programs are compiled.
        clients_per_chunk: number of clients trained together on a device.
        lr_schedule: ``round -> client learning rate``.
        stop_nonfinite: whether to leave the loop over rounds when a result is not finite.
        dropout: the probability that a client of the cohort drops out.
        stragglers: the probability that a client of the cohort takes only part of its steps.
    """

    local: LocalSpec
    mesh: Mesh
    target: Target
    clients_per_chunk: int
    lr_schedule: Callable[[Any], Any]
    stop_nonfinite: bool = True
    dropout: float = 0.0
    stragglers: float = 0.0


_DATA_FIELDS = ["local", "lr_schedule"]
jax.tree_util.register_dataclass(
    RoundSpec,
    data_fields=_DATA_FIELDS,
    meta_fields=[f.name for f in dataclasses.fields(RoundSpec) if f.name not in _DATA_FIELDS],
)


def run_rounds(
    spec: RoundSpec,
    length: int,
    state: State,
    data: FederatedData,
    until: jax.Array,
) -> tuple[State, RoundReport]:
    """Runs rounds up to ``until``, and at most ``length`` of them, in one program.

    Args:
        spec: the specification of rounds.
        length: size of the report's leading axis.
        state: the state from which to continue.
        data: the federated dataset.
        until: int32, the index of the first round that is not run.

    Returns:
        The new state, and reports ``[length, ...]`` of which the first ``until - state.round`` (or
        up to the first non-finite round) are filled.
    """
    first = state.round
    one_round = jax.jit(functools.partial(run_round, spec))
    report = jax.eval_shape(one_round, state, data)[1]
    buffers = jax.tree.map(lambda r: jnp.zeros((length, *r.shape), r.dtype), report)

    def unfinished(carry):
        state, _, fine = carry
        return (state.round < until) & fine

    def body(carry):
        state, buffers, fine = carry
        new, report = one_round(state, data)
        buffers = jax.tree.map(lambda b, r: b.at[state.round - first].set(r), buffers, report)
        if spec.stop_nonfinite:
            fine = jnp.all(report.params_finite) & (jnp.sum(report.nonfinite) == 0)
        return new, buffers, fine

    state, buffers, _ = jax.lax.while_loop(unfinished, body, (state, buffers, jnp.bool_(True)))
    return state, buffers


def run_round(spec: RoundSpec, state: State, data: FederatedData) -> tuple[State, RoundReport]:
    """Runs one round for all seeds: draws the cohort, trains it and updates the server."""
    return run_clients(
        spec, state, data, draw_cohort(spec, state.keys, data.log_weights, state.round)
    )


def draw_cohort(
    spec: RoundSpec, keys: jax.Array, log_weights: jax.Array | None, round_: jax.Array
) -> jax.Array:
    """Draws the cohort ``[S, M]`` of a round, as a function of (seed, round).

    Args:
        spec: the specification of rounds.
        keys: raw keys ``[S, 2]`` of the seeds.
        log_weights: as in ``FederatedData``.
        round_: int32, the index of the round.
    """
    info = spec.local.info
    streams = stream_keys(keys, Stream.COHORT, round_)
    weights = weights_of_round(log_weights, round_)
    return sample_cohort(streams, info.num_clients, info.cohort_size, weights)


def run_clients(
    spec: RoundSpec, state: State, data: FederatedData, cohort: jax.Array
) -> tuple[State, RoundReport]:
    """Trains the clients ``cohort [S, M]``; ``state.clients`` holds all clients' rows."""

    def deal(slots):
        return deal_clients(spec.mesh, state.clients, cohort, slots)

    def collect(slots, places, rows):
        return collect_clients(spec.mesh, state.clients, cohort, slots, rows)

    return _run(spec, state, data, cohort, deal, collect)


def run_cohort(
    spec: RoundSpec, state: State, data: FederatedData, cohort: jax.Array
) -> tuple[State, RoundReport]:
    """Trains the clients ``cohort [S, M]``; ``state.clients`` holds their rows ``[S, M, ...]``."""
    flat = jax.tree.map(lambda k: k.reshape(cohort.size, *k.shape[2:]), state.clients)

    def deal(slots):
        return jax.tree.map(lambda k: k[jnp.minimum(slots, cohort.size - 1)], flat)

    def collect(slots, places, rows):
        return _in_order(rows, places, cohort.shape)

    return _run(spec, state, data, cohort, deal, collect)


@traced_for_target
def _run(
    spec: RoundSpec,
    state: State,
    data: FederatedData,
    cohort: jax.Array,
    deal: Callable[[jax.Array], ClientState],
    collect: Callable[[jax.Array, jax.Array, ClientState], ClientState],
) -> tuple[State, RoundReport]:
    """Trains the clients ``cohort [S, M]``.

    Args:
        spec: the specification of rounds.
        state: the state before the round.
        data: the federated dataset.
        cohort: client indices.
        deal: returns the state of the clients in slots ``[D, R, c]`` of the cohort.
        collect: returns the next ``state.clients`` from slots, the position ``[S * M]`` of each
            client in the slots, and new rows ``[D, R, c, ...]``.
    """
    local = spec.local
    num_seeds, devices = len(cohort), spec.mesh.devices.size
    num_samples = data.size(jnp.arange(num_seeds)[:, None], cohort)
    asked, steps = _steps(spec, state, data, cohort, num_samples)
    items, slots, places = assign_clients(cohort, steps, devices, spec.clients_per_chunk)
    lr = jnp.asarray(spec.lr_schedule(state.round), jnp.float32)
    broadcast = Broadcast(
        state.params,
        state.stats,
        state.server,
        jnp.broadcast_to(lr, (num_seeds,)),
        stream_keys(state.keys, Stream.CLIENT, state.round),
    )
    train = jax.shard_map(
        functools.partial(_train_device, devices),
        mesh=spec.mesh,
        in_specs=(P(), P("clients"), P("clients"), P(), P(), P()),
        out_specs=(P(), P("clients"), P()),
        check_vma=False,
    )
    sums, outs, executed = train(local, items, deal(slots), broadcast, data, state.round)
    clients = collect(slots, places, outs.client_state)
    outs = outs._replace(client_state=ClientState(None, None))
    outs = _in_order(outs, places, cohort.shape)
    params, stats, server = server_step(spec, state, data, cohort, lr, sums, outs)
    samples = jnp.sum(local.samples_used(num_samples, steps))
    report = round_report(cohort, outs.report, sums, params, asked, steps, executed, samples)
    return State(params, stats, server, clients, state.round + 1, state.keys), report


def _in_order(tree: PyTree, places: jax.Array, shape: tuple[int, ...]) -> PyTree:
    """Reorders values ``[D, R, c, ...]`` of slots to those of the cohort ``[S, M, ...]``."""

    def pick(a):  # An upload may be empty, so that no size can be inferred by -1.
        flat = a.reshape(math.prod(a.shape[:3]), *a.shape[3:])
        return flat[places].reshape(*shape, *a.shape[3:])

    return jax.tree.map(pick, tree)


def _steps(
    spec: RoundSpec, state: State, data: FederatedData, cohort: jax.Array, num_samples: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns which clients ``[S, M]`` are available, and their numbers of local steps."""
    steps = steps_taken(
        spec.local.num_steps(num_samples),
        cohort,
        state.keys,
        state.round,
        dropout=spec.dropout,
        stragglers=spec.stragglers,
    )
    weights = weights_of_round(data.log_weights, state.round)
    if weights is None:
        return jnp.ones_like(steps, bool), steps
    asked = weights[cohort] > -jnp.inf
    return asked, jnp.where(asked, steps, 0)


def _train_device(
    devices: int,
    local: LocalSpec,
    items: ClientSlot,
    client_state: ClientState,
    broadcast: Broadcast,
    data: FederatedData,
    round_: jax.Array,
) -> tuple[Sums, ClientOutput, jax.Array]:
    """Trains one device's clients; leading axes ``[1, R, c]`` of ``items`` and ``client_state``."""
    num_seeds = broadcast.lr.shape[0]
    items, client_state = jax.tree.map(lambda a: a[0], (items, client_state))
    if num_seeds == 1:
        one, axis = jax.tree.map(lambda a: a[0], broadcast), None
    else:
        one, axis = broadcast, 0

    @jax.jit  # Traced only once, although its shapes are computed before it is used.
    def train(items, client_state):
        """Trains the clients ``[c]`` of one chunk."""
        sizes = data.size(items.seed, items.client)
        passes = -(-jnp.where(items.num_steps > 0, sizes, 0) // local.info.batch_rows)
        bounds = LoopBounds(jnp.max(items.num_steps), jnp.max(passes))
        fn = functools.partial(train_client, local, data)
        if items.seed.shape[0] == 1:  # Products are faster without an axis of size one.
            item, own = jax.tree.map(lambda a: a[0], (items, client_state))
            sent = one if axis is None else trees.index(one, item.seed)
            out = fn(sent, own, item, round_, bounds, alone=True)
            return jax.tree.map(lambda a: a[None], out)
        sent = one if axis is None else trees.index(one, items.seed)
        return jax.vmap(fn, in_axes=(axis, 0, 0, None, None))(
            sent, client_state, items, round_, bounds
        )

    def body(sums, chunk):
        items, client_state = chunk
        out = train(items, client_state)
        sums = jax.tree.map(jnp.add, sums, sum_chunk(out, items.seed, num_seeds))
        keep_models = local.method.needs_client_models
        out = out._replace(
            delta=None,
            params=out.params if keep_models else None,
            stats=out.stats if keep_models else None,
            upload=out.upload._replace(summed=None),
        )
        return sums, (out, jnp.max(items.num_steps) * items.num_steps.shape[0])

    shapes = jax.eval_shape(
        lambda items, client_state: sum_chunk(train(items, client_state), items.seed, num_seeds),
        *jax.tree.map(lambda a: a[0], (items, client_state)),
    )
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    sums, (outs, executed) = jax.lax.scan(body, zeros, (items, client_state))
    executed = jnp.sum(executed)
    if devices > 1:
        sums, executed = sum_over_devices((sums, executed))
    return sums, jax.tree.map(lambda a: a[None], outs), executed


def server_step(
    spec: RoundSpec,
    state: State,
    data: FederatedData,
    cohort: jax.Array,
    lr: jax.Array,
    sums: Sums,
    outs: ClientOutput,
) -> tuple[PyTree, PyTree, PyTree]:
    """Returns the next ``(params, stats, server)`` from what the cohort sent."""
    method, info = spec.local.method, spec.local.info
    server_keys = stream_keys(state.keys, Stream.SERVER, state.round)

    def one_seed(params, stats, server, cohort, sums, outs, key, counts, labelled, unlabelled):
        total = jnp.maximum(sums.weight, 1e-12)
        trained = sums.weight > 0
        mean_stats = jax.tree.map(lambda s: s / total, sums.stats)
        if jax.tree.structure(mean_stats) == jax.tree.structure(stats):
            mean_stats = jax.tree.map(lambda m, s: jnp.where(trained, m, s), mean_stats, stats)
        rnd = Round(
            info=info,
            model=spec.local.model,
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
            labelled=data.server_labelled(labelled) if method.needs_labelled_data else None,
            unlabelled=data.server_unlabelled(unlabelled) if method.needs_unlabelled_data else None,
        )
        if method.update_server_state:
            rnd = dataclasses.replace(rnd, state=method.update_server_state(rnd))
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
