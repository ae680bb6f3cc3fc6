"""Times what precedes the first round of a process whose programs are cached."""

import json
import subprocess
import sys
import time

from experiments import app
from experiments.bench.workloads import WORKLOADS, make_problem


def measure(workload: str) -> dict[str, float]:
    """Returns the seconds of each step in a new process, after another one has filled the cache."""
    for _ in range(2):
        command = [sys.executable, "-m", "experiments.bench.startup", workload, repr(time.time())]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(workload: str, began: float) -> dict[str, float]:
    """Prepares one round of a workload and returns the seconds of each step.

    Args:
        workload: one of ``WORKLOADS``.
        began: the time at which the process was started.
    """
    import fedjax_skew.runs.train  # noqa: F401  The imports of a training run.
    from fedjax_skew.simulation.arrays import device_arrays
    from fedjax_skew.simulation.state import initial_state
    from fedjax_skew.simulation.tracing import trace_rounds

    steps = {"imports": time.time() - began}

    def lap(name: str) -> None:
        steps[name] = time.time() - began - sum(steps.values())

    app.cache_programs()
    problem = make_problem(WORKLOADS[workload])
    lap("partition")
    arrays, state = device_arrays(problem), initial_state(problem)
    lap("initial state")
    lowered = trace_rounds(problem, problem.phases[0], state, arrays).lower()
    lap("tracing")
    lowered.compile()
    lap("program from the cache")
    return steps


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]))))
