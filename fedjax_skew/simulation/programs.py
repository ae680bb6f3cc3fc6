"""The compiled functions of one phase, wherever its samples and kept state are."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_skew.data.federated import FederatedData
from fedjax_skew.engine import host
from fedjax_skew.engine.client_state import gather_clients, gather_host_clients
from fedjax_skew.engine.evaluate import Scores, TestSet, batches, evaluate, evaluate_clients
from fedjax_skew.engine.local_eval import LocalScores, local_scores, spread_clients
from fedjax_skew.engine.mesh import compiler_options, place, replicate
from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.engine.round import RoundSpec, State, run_rounds, state_shardings
from fedjax_skew.simulation.problem import Phase, Problem


class Arrays(NamedTuple):
    """What stays on the devices during a run; see ``device_arrays``."""

    data: FederatedData
    tests: tuple[TestSet, ...]


class Programs(NamedTuple):
    """Functions of a state.

    Attributes:
        rounds: ``(state, until) -> (state, reports)``; the state that goes in is used up.
        scores: ``(state, final) -> Scores`` of each of ``scored_sets``.
        clients: scores of clients' own models, if ``num_personal_eval_clients`` asks for them.
        local: scores around a local update, if ``num_local_eval_clients`` asks for them.
    """

    rounds: Callable[[State, int], tuple[State, RoundReport]]
    scores: Callable[[State, bool], tuple[Scores, ...]]
    clients: Callable[[State], Scores] | None
    local: Callable[[State], LocalScores] | None


def device_arrays(problem: Problem) -> Arrays:
    """Puts on the devices what the configuration wants there."""
    config, dataset = problem.config, problem.dataset
    mesh = problem.phases[0].spec.mesh
    size = config.eval_batch_size
    tests = tuple(
        batches(
            getattr(dataset, f"x_{name}"), getattr(dataset, f"y_{name}"), size, mesh.devices.size
        )
        for name in scored_sets(problem)
    )
    data = problem.data
    if config.dataset.placement == "host":
        data = host.tables(data, [phase.method for phase in problem.phases])
    return Arrays(replicate(data, mesh), place(tests, mesh, P("clients")))


def scored_sets(problem: Problem) -> tuple[str, ...]:
    """The parts of the dataset that are evaluated, in the order of ``Programs.scores``."""
    validation = ("validation",) if problem.dataset.x_validation is not None else ()
    return ("test", *validation, *(("train",) if problem.config.eval_train_set else ()))


def some_clients(problem: Problem, field: str) -> np.ndarray:
    """As many clients ``[k]`` as the field says, spread evenly over all of them."""
    return np.asarray(spread_clients(problem.info.num_clients, problem.config[field]))


def compile_phase(problem: Problem, phase: Phase, state: State, arrays: Arrays) -> Programs:
    """Compiles rounds and evaluation for states like ``state``."""
    config = problem.config
    clients = local = None
    if phase.method.personal and config.num_personal_eval_clients:
        who = some_clients(problem, "num_personal_eval_clients")
        clients = _look(evaluate_clients, problem, phase.spec, arrays, who)
    if config.num_local_eval_clients:
        who = some_clients(problem, "num_local_eval_clients")
        local = _look(local_scores, problem, phase.spec, arrays, who)
    scores = _scores(phase.spec, state, arrays)
    return Programs(compile_rounds(problem, phase, state, arrays), scores, clients, local)


def compile_rounds(
    problem: Problem, phase: Phase, state: State, arrays: Arrays
) -> Callable[[State, int], tuple[State, RoundReport]]:
    """``Programs.rounds`` alone."""
    data = arrays.data
    if data.x is None or host.on_host(state):
        source = problem.data if data.x is None else None
        return host.HostRounds(phase.spec, state, source, data)
    compiled = lower_rounds(problem, phase, state, arrays).compile()

    def rounds(state, until):
        first = int(state.round)
        state, report = compiled(state, data, np.int32(until))
        done = int(state.round) - first
        return state, jax.tree.map(lambda r: np.asarray(r)[:done], report)

    return rounds


def lower_rounds(
    problem: Problem, phase: Phase, state: State, arrays: Arrays
) -> jax.stages.Lowered:
    """Lowers ``(state, data, until) -> (state, reports)`` for data and state on the devices."""
    length = min(problem.config.eval_every, phase.last - phase.first)
    shardings = state_shardings(phase.spec.mesh)
    fn = jax.jit(
        functools.partial(run_rounds, phase.spec, length),
        donate_argnums=0,
        out_shardings=(shardings, shardings.round),
        compiler_options=compiler_options(),
    )
    return fn.lower(state, arrays.data, np.int32(0))


def _scores(spec: RoundSpec, state: State, arrays: Arrays) -> Callable[..., Any]:
    everywhere = NamedSharding(spec.mesh, P())
    fn = jax.jit(
        functools.partial(evaluate, spec),
        out_shardings=everywhere,
        compiler_options=compiler_options(),
    )
    state = state._replace(clients=None)
    compiled = fn.lower(state, *arrays, np.bool_(False)).compile()
    return lambda state, final: compiled(state._replace(clients=None), *arrays, np.bool_(final))


def _look(
    fn: Callable[..., Any], problem: Problem, spec: RoundSpec, arrays: Arrays, who: np.ndarray
) -> Callable[[State], Any]:
    """``state -> fn(...)`` about the clients ``who [k]``."""
    data, tests = arrays
    cohort = np.tile(who, (len(problem.seeds), 1))
    samples = None
    if data.x is None:
        longest = int(problem.data.size(np.arange(len(cohort))[:, None], cohort).sum(1).max())
        samples = replicate(host.gather(problem.data, cohort, longest), spec.mesh)

    def look(on_host_rows, state, data, test, samples):
        if samples is not None:
            data = host.with_samples(data, samples, cohort)
        if not on_host_rows:
            state = state._replace(
                clients=gather_clients(spec.mesh, state.clients, jnp.asarray(cohort))
            )
        return fn(spec, state, data, test, jnp.asarray(who))

    everywhere = NamedSharding(spec.mesh, P())
    jitted = jax.jit(look, static_argnums=0, out_shardings=everywhere)

    def run(state):
        on_host_rows = host.on_host(state)
        if on_host_rows:
            rows = replicate(gather_host_clients(state.clients, cohort), spec.mesh)
            state = state._replace(clients=rows)
        return jitted(on_host_rows, state, data, tests[0], samples)

    return run
