"""A simulation as pure functions, for callers that apply jit, scan and vmap themselves.

    simulation = make_simulation(config, dataset=dataset)
    state = simulation.init()

    def step(state, _):
        return simulation.round(state, simulation.arrays)

    state, reports = jax.lax.scan(step, state, length=10)
    scores = simulation.evaluate(state, simulation.arrays)

Every function is pure and has a leading axis of seeds, whose size is ``num_seeds`` of the
configuration. To simulate other random seeds, pass other keys to ``init``, also under ``vmap``::

    keys = engine.keys.seed_keys(jnp.arange(20)).reshape(20, 1, 2)
    states = jax.vmap(simulation.init)(keys)
    states, reports = jax.vmap(simulation.round, in_axes=(0, None))(states, simulation.arrays)
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_skew.engine.evaluate import Scores, evaluate
from fedjax_skew.engine.reduction import RoundReport
from fedjax_skew.engine.round import State, run_round
from fedjax_skew.simulation import problem as problems
from fedjax_skew.simulation import state as states
from fedjax_skew.simulation.arrays import Arrays, device_arrays


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Pure functions of a problem.

    ``phase`` is the index of a phase of the method, from 0; only a few methods have more than one.

    Attributes:
        problem: the simulated problem.
        arrays: the dataset on the devices, an argument of ``round`` and ``evaluate``.
    """

    problem: problems.Problem
    arrays: Arrays

    def init(self, keys: jax.Array | None = None) -> State:
        """Returns the state before the first round.

        Args:
            keys: raw PRNG keys ``[S, 2]``; those of the configured seeds by default. They do not
                affect the partition, which is always that of the configured seeds.
        """
        return states.initial_state(self.problem, keys)

    def round(self, state: State, arrays: Arrays, *, phase: int = 0) -> tuple[State, RoundReport]:
        """Runs one round and returns the next state and a report of the round."""
        return run_round(self.problem.phases[phase].spec, state, arrays.data)

    def evaluate(
        self, state: State, arrays: Arrays, *, final: Any = True, phase: int = 0
    ) -> Scores:
        """Returns the test scores ``[S, ...]`` of the model that the method evaluates.

        Args:
            state: the state to evaluate.
            arrays: the dataset.
            final: whether training has ended; some methods evaluate a different model then.
            phase: the phase of the state.
        """
        spec = self.problem.phases[phase].spec
        return evaluate(spec, state, arrays.data, arrays.tests, jnp.asarray(final))[0]

    def next_phase(self, state: State, *, phase: int = 0) -> State:
        """Returns the initial state of the phase after ``phase``; it is computed on the host."""
        return states.start_next_phase(self.problem, self.problem.phases[phase], state)


def make_simulation(config: Any, **given: Any) -> Simulation:
    """Builds a simulation.

    Args:
        config: the configuration; see ``fedjax_skew.default_config``.
        **given: ``dataset``, ``partition``, ``method``, ``module``, ``optimizer`` and ``params``
            that replace fields of the configuration; see ``fedjax_skew.simulate``.

    Raises:
        ValueError: if the configuration or the data is invalid, or if the configuration keeps
            arrays on the host, where pure functions cannot access them.
    """
    for field, value in (
        ("dataset.placement", config.dataset.placement),
        ("state_placement", config.state_placement),
    ):
        if value != "device":
            raise ValueError(
                f"{field}={value!r} keeps arrays on the host, where pure functions cannot access "
                "them; it must be 'device'."
            )
    problem = problems.build(config, **given)
    return Simulation(problem, device_arrays(problem))
