"""The compiled functions of one phase, for samples and client state on the devices or the host."""

import concurrent.futures
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_skew.engine import host
from fedjax_skew.engine.client_state import gather_clients, gather_host_clients
from fedjax_skew.engine.communication import Traffic, traffic
from fedjax_skew.engine.evaluate import (
    ClientScores,
    Scores,
    TestSet,
    evaluate_clients,
    score_holdout,
)
from fedjax_skew.engine.local_eval import LocalScores, local_scores, spread_clients
from fedjax_skew.engine.mesh import replicate
from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.engine.round import State
from fedjax_skew.simulation.arrays import Arrays, own_sets
from fedjax_skew.simulation.phases import Phase
from fedjax_skew.simulation.problem import Problem
from fedjax_skew.simulation.tracing import trace_evaluation, trace_rounds
from fedjax_skew.simulation.waiting import BLOCK, Waiter

PyTree = Any


class Programs(NamedTuple):
    """Compiled functions of a state.

    Attributes:
        rounds: ``(state, until) -> (state, reports)``; the buffers of the input state are donated.
        model: ``(state, final) -> models [S, ...]`` that the method evaluates.
        scores: ``models -> Scores``, one for each of ``scored_sets``.
        holdout: ``models -> Scores`` on the held-out samples of the clients
            ``some_clients(problem, "num_personal_eval_clients")``, or None.
        clients: scores of the personal models of the same clients, or None.
        local: scores of the clients ``some_clients(problem, "num_local_eval_clients")`` before and
            after a local update, or None.
        traffic: bytes between the server and one client per round.
    """

    rounds: Callable[[State, int], tuple[State, RoundReport]]
    model: Callable[[State, bool], PyTree]
    scores: Callable[[PyTree], tuple[Scores, ...]]
    holdout: Callable[[PyTree], Scores] | None
    clients: Callable[[State], ClientScores] | None
    local: Callable[[State], LocalScores] | None
    traffic: Traffic


def some_clients(problem: Problem, field: str) -> np.ndarray:
    """Returns evenly spaced client indices ``[k]``, where ``field`` holds their number."""
    return np.asarray(spread_clients(problem.info.num_clients, problem.config[field]))


def compile_phase(
    problem: Problem, phase: Phase, state: State, arrays: Arrays, waiter: Waiter = BLOCK
) -> Programs:
    """Compiles rounds and evaluation for states with the shapes of ``state``."""
    config = problem.config
    # Bytes are counted by tracing, which can run while XLA compiles.
    thread = concurrent.futures.ThreadPoolExecutor(1)
    last = phase is problem.phases[-1]
    sent = thread.submit(traffic, phase.spec, state, problem.data, last=last)
    thread.shutdown(wait=False)
    clients = local = holdout = None
    who = some_clients(problem, "num_personal_eval_clients")
    own = replicate(own_sets(problem, who), phase.spec.mesh)
    if own is not None:
        holdout = _score_holdout(phase, own, waiter)
    if phase.method.personal and len(who):
        sets = arrays.tests[0], own
        clients = _about_clients(evaluate_clients, problem, phase, state, arrays, sets, who, waiter)
    if config.num_local_eval_clients:
        who = some_clients(problem, "num_local_eval_clients")
        test = arrays.tests[0]
        local = _about_clients(local_scores, problem, phase, state, arrays, test, who, waiter)
    rounds = compile_rounds(problem, phase, state, arrays, waiter)
    model, scores = _compile_evaluation(phase, state, arrays, waiter)
    return Programs(rounds, model, scores, holdout, clients, local, sent.result())


def compile_rounds(
    problem: Problem, phase: Phase, state: State, arrays: Arrays, waiter: Waiter = BLOCK
) -> Callable[[State, int], tuple[State, RoundReport]]:
    """Compiles only ``Programs.rounds``."""
    data = arrays.data
    if data.x is None or host.on_host(state):
        source = problem.data if data.x is None else None
        return host.HostRounds(phase.spec, state, source, data, waiter.compile, waiter.rounds)
    compiled = waiter.compile(trace_rounds(problem, phase, state, arrays).lower())

    def rounds(state, until):
        first = int(state.round)
        state, report = waiter.rounds(compiled(phase.spec, state, data, np.int32(until)))
        done = int(state.round) - first
        return state, jax.tree.map(lambda r: np.asarray(r)[:done], report)

    return rounds


def _compile_evaluation(
    phase: Phase, state: State, arrays: Arrays, waiter: Waiter
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compiles ``Programs.model`` and ``Programs.scores``."""
    traced = trace_evaluation(phase, state, arrays)
    make = waiter.compile(traced.model.lower()) if traced.model else None
    score = waiter.compile(traced.scores.lower())

    def model(state, final):
        if make is None:
            return state.params, state.stats
        args = state._replace(clients=None), arrays.data, np.bool_(final)
        return waiter.rounds(make(phase.spec, *args))  # Also needed for a checkpoint.

    return model, lambda models: waiter.evaluation(score(phase.spec, models, arrays.tests))


def _score_holdout(phase: Phase, own: TestSet, waiter: Waiter) -> Callable[[PyTree], Scores]:
    """Returns ``Programs.holdout``, which is compiled when it is first called."""
    score = jax.jit(
        functools.partial(score_holdout, phase.spec),
        out_shardings=NamedSharding(phase.spec.mesh, P()),
        compiler_options=phase.spec.target.compiler_options(),
    )
    return lambda models: waiter.evaluation(score(models, own))


def _about_clients(
    fn: Callable[..., Any],
    problem: Problem,
    phase: Phase,
    state: State,
    arrays: Arrays,
    test: Any,
    who: np.ndarray,
    waiter: Waiter,
) -> Callable[[State], Any]:
    """Compiles ``state -> fn(...)`` for the clients ``who [k]`` and the set or sets ``test``."""
    spec = phase.spec
    cohort = np.tile(who, (len(problem.seeds), 1))
    samples = None
    if arrays.data.x is None:
        longest = int(problem.data.size(np.arange(len(cohort))[:, None], cohort).sum(1).max())
        samples = replicate(host.gather(problem.data, cohort, longest), spec.mesh)
    on_host = host.on_host(state)

    def about(spec, state, data, test, samples):
        if samples is not None:
            data = host.with_samples(data, samples, cohort)
        if not on_host:
            rows = gather_clients(spec.mesh, state.clients, jnp.asarray(cohort))
            state = state._replace(clients=rows)
        return fn(spec, state, data, test, jnp.asarray(who))

    def brought(state):
        if not on_host:
            return state
        rows = replicate(gather_host_clients(state.clients, cohort), spec.mesh)
        return state._replace(clients=rows)

    jitted = jax.jit(about, out_shardings=NamedSharding(spec.mesh, P()))
    compiled = waiter.compile(jitted.lower(spec, brought(state), arrays.data, test, samples))

    def call(state):
        return waiter.evaluation(compiled(spec, brought(state), arrays.data, test, samples))

    return call
