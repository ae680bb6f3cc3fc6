"""Rounds whose samples or client state are kept on the host, which run one at a time.

With ``dataset.placement="host"``, the device holds the samples of two cohorts: that of the current
round, and that of the next round, which a thread gathers in the meantime. They are padded to the
largest possible cohort, so that shapes never change. With ``state_placement="host"``, the device
holds the state of the clients of one cohort. In a run over several hosts, every process has all
samples and the state of all clients in its memory.
"""

import concurrent.futures
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine.client_state import gather_host_clients, scatter_host_clients
from fedjax_skew.engine.mesh import fetch, replicate
from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.engine.round import (
    RoundSpec,
    State,
    draw_cohort,
    run_clients,
    run_cohort,
    state_shardings,
)
from fedjax_skew.methods.base import Method

_BLOCK = 64  # Rounds whose cohorts are drawn together, so that draws rarely wait for a round.


class Samples(NamedTuple):
    """Samples ``[S * W, ...]`` and labels ``[S * W]`` of a cohort, concatenated seed by seed."""

    x: Any
    labels: Any


def tables(data: FederatedData, methods: Sequence[Method]) -> FederatedData:
    """Returns the data without the clients' samples: their sizes, and the server's samples."""
    small = data._replace(x=None, labels=None, order=None)
    if any(m.needs_labelled_data for m in methods):
        ids = np.unique(data.labelled)
        small = small._replace(
            labelled=np.searchsorted(ids, data.labelled).astype(np.int32),
            labelled_x=data.x[ids],
            labelled_labels=data.labels[ids],
        )
    if any(m.needs_unlabelled_data for m in methods) and data.unlabelled_x is None:
        ids = np.unique(data.unlabelled)
        small = small._replace(
            unlabelled=np.searchsorted(ids, data.unlabelled).astype(np.int32),
            unlabelled_x=data.x[ids],
        )
    return small


def width(data: FederatedData, cohort_size: int) -> int:
    """Returns W, the number of samples of the largest possible cohort."""
    sizes = np.sort(np.diff(data.offsets, axis=1), axis=1)
    return int(sizes[:, -cohort_size:].sum(1, dtype=np.int64).max())


def gather(data: FederatedData, cohort: np.ndarray, width: int) -> Samples:
    """Copies the samples of the clients ``cohort [S, M]``; the remaining rows are zero."""
    shape = (len(cohort) * width, *data.x.shape[1:])
    samples = Samples(np.zeros(shape, data.x.dtype), np.zeros(shape[0], np.int32))
    for seed, clients in enumerate(cohort):
        bounds = [data.offsets[seed, k : k + 2] for k in clients]
        ids = np.concatenate([data.order[seed, first:last] for first, last in bounds])
        part = slice(seed * width, seed * width + len(ids))
        # With a mode other than "raise", numpy writes to out without an intermediate buffer.
        np.take(data.x, ids, axis=0, out=samples.x[part], mode="clip")
        samples.labels[part] = data.labels[ids]
    return samples


def with_samples(small: FederatedData, samples: Samples, cohort: jax.Array) -> FederatedData:
    """Adds the samples of a cohort to ``tables``; the result is valid only for that cohort."""
    seeds = jnp.arange(len(cohort))[:, None]
    sizes = small.size(seeds, cohort)
    shape = small.class_counts.shape[:2]
    starts = jnp.zeros(shape, jnp.int32).at[seeds, cohort].set(jnp.cumsum(sizes, 1) - sizes)
    order = jnp.arange(samples.labels.shape[0], dtype=jnp.int32).reshape(len(cohort), -1)
    return small._replace(x=samples.x, labels=samples.labels, order=order, starts=starts)


def on_host(state: State) -> bool:
    """Returns whether the clients' rows of a state are numpy arrays."""
    return any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(state.clients))


class HostRounds:
    """A function ``(state, until) -> (state, reports)`` like ``run_rounds``, looped on the host.

    Args:
        spec: the specification of rounds.
        state: a state that provides shapes and keys; client state in numpy is changed in place.
        source: the samples on the host, or None if ``data`` has them.
        data: the data on the devices.
        compile: compiles a lowered program.
        wait: returns arrays when they have been computed.
    """

    def __init__(
        self,
        spec: RoundSpec,
        state: State,
        source: FederatedData | None,
        data: FederatedData,
        compile: Callable[[Any], Any],
        wait: Callable[[Any], Any],
    ):
        self._spec, self._data, self._wait = spec, data, wait
        self._feed = _Feed(spec, source, fetch(data.log_weights), np.asarray(state.keys))
        self._on_host = on_host(state)
        shardings = state_shardings(spec.mesh)
        everywhere = shardings.round
        if self._on_host:
            shardings = shardings._replace(clients=everywhere)
        step = jax.jit(
            _step,
            static_argnums=1,
            donate_argnums=2,
            out_shardings=(shardings, everywhere),
            compiler_options=spec.target.compiler_options(),
        )
        cohort, samples = self._feed.shapes()
        if self._on_host:
            rows = jax.eval_shape(gather_host_clients, state.clients, cohort)
            rows = jax.tree.map(
                lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=everywhere), rows
            )
            state = state._replace(clients=rows)
        self._step: Callable[..., Any] = compile(
            step.lower(spec, self._on_host, state, data, cohort, samples)
        )

    def __call__(self, state: State, until: int) -> tuple[State, RoundReport]:
        """Runs rounds up to ``until``; reports ``[until - state.round, ...]`` are numpy."""
        reports = []
        for round_ in range(int(state.round), until):
            cohort, placed, samples = self._feed.take(round_)
            client_state = state.clients
            if self._on_host:
                rows = replicate(gather_host_clients(client_state, cohort), self._spec.mesh)
                state = state._replace(clients=rows)
            state, report = self._wait(self._step(self._spec, state, self._data, placed, samples))
            if self._on_host:
                scatter_host_clients(client_state, cohort, state.clients)
                state = state._replace(clients=client_state)
            reports.append(fetch(report))
            fine = reports[-1].params_finite.all() and not reports[-1].nonfinite.any()
            if self._spec.stop_nonfinite and not fine:
                break
        return state, jax.tree.map(lambda *r: np.stack(r), *reports)


def _step(
    spec: RoundSpec,
    on_host_rows: bool,
    state: State,
    data: FederatedData,
    cohort: jax.Array,
    samples: Samples | None,
) -> tuple[State, RoundReport]:
    """Runs one round; with ``on_host_rows``, ``state.clients`` has only the cohort's rows."""
    if samples is not None:
        data = with_samples(data, samples, cohort)
    run = run_cohort if on_host_rows else run_clients
    return run(spec, state, data, cohort)


class _Feed:
    """A source of cohorts and their samples; those of the next round are gathered in a thread."""

    def __init__(
        self,
        spec: RoundSpec,
        source: FederatedData | None,
        log_weights: np.ndarray | None,
        keys: np.ndarray,
    ):
        self._spec, self._source, self._keys = spec, source, keys
        self._size = spec.local.info.cohort_size
        self._width = width(source, self._size) if source else 0
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._next: tuple[int, concurrent.futures.Future] | None = None
        self._drawn: tuple[int, np.ndarray] | None = None

        def draw(rounds, log_weights):
            return jax.vmap(lambda round_: draw_cohort(spec, keys, log_weights, round_))(rounds)

        self._draw = functools.partial(jax.jit(draw), log_weights=log_weights)

    def take(self, round_: int) -> tuple[np.ndarray, jax.Array, Samples | None]:
        """Returns the cohort ``[S, M]`` on the host and on the devices, and its samples there."""
        ahead, self._next = self._next, None
        made = ahead[1] if ahead and ahead[0] == round_ else self._start(round_)
        result = made.result()
        self._next = round_ + 1, self._start(round_ + 1)
        return result

    def shapes(self) -> tuple[Any, Any]:
        """Returns the shapes of the arrays that ``take`` puts on the devices."""
        everywhere = NamedSharding(self._spec.mesh, P())

        def shaped(shape, dtype):
            return jax.ShapeDtypeStruct(shape, dtype, sharding=everywhere)

        seeds = len(self._keys)
        cohort = shaped((seeds, self._size), np.int32)
        if self._source is None:
            return cohort, None
        length, x = seeds * self._width, self._source.x
        return cohort, Samples(shaped((length, *x.shape[1:]), x.dtype), shaped((length,), np.int32))

    def _start(self, round_: int) -> concurrent.futures.Future:
        return self._thread.submit(self._make, round_)

    def _make(self, round_: int) -> tuple[np.ndarray, jax.Array, Samples | None]:
        block, at = divmod(round_, _BLOCK)
        if self._drawn is None or self._drawn[0] != block:
            rounds = np.arange(block * _BLOCK, (block + 1) * _BLOCK, dtype=np.int32)
            self._drawn = block, np.asarray(self._draw(rounds))
        cohort = self._drawn[1][at]
        samples = gather(self._source, cohort, self._width) if self._source else None
        return cohort, *replicate((cohort, samples), self._spec.mesh)
