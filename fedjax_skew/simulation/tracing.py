"""Traced programs of a phase, to be compiled or to be lowered for devices that are not present.

Arguments may be shapes instead of arrays, as returned by ``abstract_arrays`` and
``abstract_state``::

    problem = build(config, target="cuda")
    state, arrays = abstract_state(problem), abstract_arrays(problem)
    traced = trace_rounds(problem, problem.phases[0], state, arrays)
    traced.lower(lowering_platforms=("cuda",)).as_text()
"""

from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_skew.engine.evaluate import eval_models, score_sets
from fedjax_skew.engine.round import State, run_rounds, state_shardings
from fedjax_skew.simulation.arrays import Arrays
from fedjax_skew.simulation.phases import Phase
from fedjax_skew.simulation.problem import Problem


def trace_rounds(problem: Problem, phase: Phase, state: State, arrays: Arrays) -> jax.stages.Traced:
    """Traces ``(spec, state, data, until) -> (state, reports)`` for data on the devices."""
    length = min(problem.config.eval_every, phase.last - phase.first)
    shardings = state_shardings(phase.spec.mesh)
    fn = jax.jit(
        run_rounds,
        static_argnums=1,
        donate_argnums=2,
        out_shardings=(shardings, shardings.round),
        compiler_options=phase.spec.target.compiler_options(),
    )
    return fn.trace(phase.spec, length, state, arrays.data, np.int32(0))


class TracedEvaluation(NamedTuple):
    """Traced programs of an evaluation, where ``spec`` is that of the phase.

    Attributes:
        model: ``(spec, state without clients, data, final) -> models [S, ...]``, or None if the
            method evaluates the global model.
        scores: ``(spec, models, tests) -> Scores``, one for each of ``scored_sets``.
    """

    model: jax.stages.Traced | None
    scores: jax.stages.Traced


def trace_evaluation(phase: Phase, state: State, arrays: Arrays) -> TracedEvaluation:
    """Traces the programs of an evaluation."""
    everywhere = NamedSharding(phase.spec.mesh, P())

    def trace(fn, *args):
        jitted = jax.jit(
            fn,
            out_shardings=everywhere,
            compiler_options=phase.spec.target.compiler_options(),
        )
        return jitted.trace(phase.spec, *args)

    if phase.method.eval_model is None:
        return TracedEvaluation(None, trace(score_sets, (state.params, state.stats), arrays.tests))
    model = trace(eval_models, state._replace(clients=None), arrays.data, np.bool_(False))
    models = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=everywhere), model.out_info
    )
    return TracedEvaluation(model, trace(score_sets, models, arrays.tests))
