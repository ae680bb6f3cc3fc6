"""The bytes that the server and clients exchange, counted on the traced programs of a round.

A client receives the leaves of the global model, the running statistics and the server's state that
its program reads and that change from round to round; of a table with one row per client, it
receives its row. It sends the leaves of its update, statistics and uploads that affect, through the
server's rule, something that a client or the evaluated model reads. Parameters that a method keeps
local or freezes are therefore not counted, without any declaration by the method. Scalars that
describe participation (client ids, sample counts, class counts, the learning rate) and transfers
that only serve evaluation are not counted, either.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine import dataflow
from fedjax_skew.engine.dataflow import ZERO, Reads, Same, Value, WeightedSum
from fedjax_skew.engine.evaluate import eval_models
from fedjax_skew.engine.local import (
    Broadcast,
    ClientOutput,
    ClientReport,
    ClientSlot,
    ClientState,
    LoopBounds,
    train_client,
)
from fedjax_skew.engine.reduction import Sums
from fedjax_skew.engine.round import RoundSpec, State, server_step
from fedjax_skew.methods.base import PyTree, Upload


class Traffic(NamedTuple):
    """The bytes that the server and one client exchange.

    Attributes:
        down: bytes to the client per round.
        up: bytes from the client per round.
        once: bytes to the client before its first round, for values that it reads but that do not
            change between rounds.
    """

    down: int
    up: int
    once: int


class _Sent(NamedTuple):
    """The results of a client's program that the server or the client's next round may read."""

    update: PyTree
    stats: PyTree
    stacked: PyTree
    summed: PyTree
    weight: jax.Array
    kept: ClientState


def traffic(spec: RoundSpec, state: State, data: FederatedData, *, last: bool = True) -> Traffic:
    """Counts the bytes of a round.

    Args:
        spec: the specification of rounds.
        state: a state, of which only the shapes are used.
        data: the whole dataset, of which only the shapes are used.
        last: whether these rounds are the last phase of the run. A later phase may read everything
            that the server has.
    """
    state, data = _one_seed(state), _data_of_one_seed(data)
    model = (state.params, state.stats, state.server)
    client = _client_program(spec, state, data)
    server = _server_program(spec, state, data, client)
    size = len(jax.tree.leaves(model))
    shown = _read_by_evaluation(spec, state, data) if last else [True] * size

    needed = [True] * len(client.output_sizes)
    while True:
        received = client.reads(needed)[:size]
        live = [bool(a) or b for a, b in zip(received, shown, strict=True)]
        while True:
            used = [bool(parts) for parts in server.reads(live)]
            grown = [a or b for a, b in zip(live, used, strict=False)]
            if grown == live:
                break
            live = grown
        fewer = _needed(client, server, used)
        if fewer == needed:
            break
        needed = fewer

    made = client.results({i: Same(i) for i in range(size)})
    after = server.results({i: Same(i) for i in range(size)} | _reduced(client, server, made))
    news = [value != Same(i) for i, value in enumerate(after)]
    down = [sum(map(dataflow.num_bytes, parts)) for parts in received]
    down = [min(part, whole) for part, whole in zip(down, client.input_sizes, strict=False)]
    uploads = jax.tree.leaves(client.outputs._replace(weight=None, kept=None))
    return Traffic(
        down=sum(part for part, new in zip(down, news, strict=True) if new),
        up=sum(client.output_sizes[i] for i in uploads if needed[i] and made[i] is None),
        once=sum(part for part, new in zip(down, news, strict=True) if not new),
    )


class _Program:
    """A traced function.

    Attributes:
        inputs: its arguments, with each leaf replaced by its index.
        outputs: its results, with each leaf replaced by its index.
        input_sizes: bytes of every input.
        output_shapes: shape and dtype of every output.
        output_sizes: bytes needed to send every output.
    """

    def __init__(self, fn: Callable[..., Any], *args: Any):
        closed, out = jax.make_jaxpr(fn, return_shape=True)(*args)
        self._jaxpr, self._constants = closed.jaxpr, closed.consts
        self.inputs, self.outputs = _numbered(args), _numbered(out)
        self.input_sizes = [_num_bytes(leaf) for leaf in jax.tree.leaves(args)]
        self.output_shapes = jax.tree.leaves(out)
        self.output_sizes = dataflow.sizes(self._jaxpr)

    def reads(self, wanted: Sequence[bool]) -> list[Reads]:
        """Calls ``dataflow.reads`` for the program."""
        return dataflow.reads(self._jaxpr, wanted)

    def results(self, inputs: Mapping[int, Value]) -> list[Value]:
        """Calls ``dataflow.results`` for the program; nothing is known about missing inputs."""
        known = [inputs.get(i) for i in range(len(self.input_sizes))]
        return dataflow.results(self._jaxpr, known, self._constants)


def _client_program(spec: RoundSpec, state: State, data: FederatedData) -> _Program:
    """Traces a client's round ``((params, stats, server), kept, numbers, data) -> _Sent``."""

    def fn(model, kept, numbers, data):
        lr, key, client, num_steps, round_ = numbers
        slot = ClientSlot(jnp.int32(0), client, num_steps)
        bounds = LoopBounds(num_steps, num_steps)
        sent = Broadcast(*model, lr, jax.random.wrap_key_data(key))
        out = train_client(spec.local, data, sent, kept, slot, round_, bounds)
        upload = out.upload
        return _Sent(
            out.delta, out.stats, upload.stacked, upload.summed, out.weight, out.client_state
        )

    model = jax.tree.map(
        lambda leaf: _struct(leaf.shape[1:], leaf.dtype), (state.params, state.stats, state.server)
    )
    kept = jax.tree.map(lambda leaf: _struct(leaf.shape[2:], leaf.dtype), state.clients)
    number = _struct((), jnp.int32)
    numbers = (_struct((), jnp.float32), _struct(state.keys.shape[1:], jnp.uint32), *[number] * 3)
    return _Program(fn, model, kept, numbers, data)


def _server_program(
    spec: RoundSpec, state: State, data: FederatedData, client: _Program
) -> _Program:
    """Traces the server's step ``(model, Sums, ClientOutput, rest) -> model``.

    Here ``model`` stands for ``(params, stats, server)``.
    """
    size = spec.local.info.cohort_size

    def fn(model, sums, outs, rest):
        round_, keys, cohort, lr, data = rest
        return server_step(spec, State(*model, None, round_, keys), data, cohort, lr, sums, outs)

    def shapes(tree, axes, dtype=None):
        return jax.tree.map(
            lambda i: _struct(
                (*axes, *client.output_shapes[i].shape), dtype or client.output_shapes[i].dtype
            ),
            tree,
        )

    sent = client.outputs
    everyone = shapes(sent._replace(kept=None), (1, size))
    models = spec.local.method.needs_client_models
    number: Any = _struct((1, size), jnp.float32)
    outs = ClientOutput(
        delta=None,
        params=everyone.update if models else None,
        stats=everyone.stats if models else None,
        weight=number,
        client_state=ClientState(None, None),
        upload=Upload(None, everyone.stacked, None),
        report=ClientReport(*[number] * len(ClientReport._fields)),
    )
    totals = shapes(sent._replace(kept=None), (1,), jnp.float32)
    sums = Sums(totals.update, totals.stats, totals.weight, totals.summed, totals.update)
    cohort = _struct((1, size), jnp.int32)
    rest = (state.round, state.keys, cohort, _struct((), jnp.float32), data)
    return _Program(fn, (state.params, state.stats, state.server), sums, outs, rest)


def _read_by_evaluation(spec: RoundSpec, state: State, data: FederatedData) -> list[bool]:
    """Returns which leaves of ``(params, stats, server)`` the method's evaluated model reads."""
    model = (state.params, state.stats, state.server)
    if spec.local.method.eval_model is None:
        return [False] * len(jax.tree.leaves(model))

    def fn(model, round_, keys, data, final):
        return eval_models(spec, State(*model, None, round_, keys), data, final)

    final = _struct((), jnp.bool_)
    program = _Program(fn, model, state.round, state.keys, data, final)
    parts = program.reads([True] * len(program.output_sizes))
    return [bool(part) for part in parts[: len(jax.tree.leaves(model))]]


def _needed(client: _Program, server: _Program, used: Sequence[bool]) -> list[bool]:
    """Returns which outputs of a client are needed by its next round or by the server."""
    _, sums, outs, _ = server.inputs
    sent = client.outputs
    needed = [False] * len(client.output_sizes)
    for outputs, inputs in (
        (sent.update, sums.delta),
        (sent.update, outs.params),
        (sent.stats, sums.stats),
        (sent.stats, outs.stats),
        (sent.stacked, outs.upload.stacked),
        (sent.summed, sums.summed),
    ):
        for i, k in zip(jax.tree.leaves(outputs), jax.tree.leaves(inputs), strict=False):
            needed[i] = needed[i] or used[k]
    for i in jax.tree.leaves((sent.weight, sent.kept)):
        needed[i] = True
    return needed


def _reduced(client: _Program, server: _Program, made: Sequence[Value]) -> dict[int, Value]:
    """Returns what is known about the sums over clients, given what is known about each client."""
    sums, sent = server.inputs[1], client.outputs
    known: dict[int, Value] = {}
    for outputs, inputs in (
        (sent.update, sums.delta),
        (sent.stats, sums.stats),
        (sent.summed, sums.summed),
    ):
        for i, k in zip(jax.tree.leaves(outputs), jax.tree.leaves(inputs), strict=True):
            if made[i] is not None:
                known[k] = ZERO if made[i] == ZERO else WeightedSum(made[i])
    return known


def _one_seed(state: State) -> State:
    fields: dict[str, Any] = {
        name: jax.tree.map(lambda leaf: _struct((1, *leaf.shape[1:]), leaf.dtype), value)
        for name, value in state._asdict().items()
        if name != "round"
    }
    fields["round"] = _struct((), jnp.int32)
    return State(**fields)


def _data_of_one_seed(data: FederatedData) -> FederatedData:
    per_seed = ("order", "offsets", "class_counts", "labelled", "unlabelled", "starts")
    shapes = {
        name: jax.tree.map(
            lambda a, one=name in per_seed: _struct((1, *a.shape[1:]) if one else a.shape, a.dtype),
            value,
        )
        for name, value in data._asdict().items()
    }
    return FederatedData(**shapes)


def _numbered(tree: PyTree) -> PyTree:
    """Returns the tree with each leaf replaced by its index."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, range(len(leaves)))


def _struct(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))


def _num_bytes(leaf: Any) -> int:
    return math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize
