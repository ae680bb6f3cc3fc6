"""Estimates the work and the time of a compiled program on a device.

The time of an operation is the longer of two times: that of its products at the peak of the device,
and that of its memory traffic at the bandwidth of the memory. It is at least the time of a launch,
and operations run one after another. Where the compiler estimates cycles (on TPUs), its estimate is
used instead. Real kernels do not reach the peak, so the result is a lower bound unless the cost of
launches is overestimated.
"""

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments import hlo, hlo_cost
from experiments.accelerators import Accelerator
from fedjax_skew.engine.cohort import assign_clients
from fedjax_skew.engine.round import draw_cohort
from fedjax_skew.simulation.problem import Problem

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "domain",
}  # fmt: skip
# Assumed iterations of the loop that walks a permutation until all positions are in range.
_WALK = 4.0


class Work(NamedTuple):
    """The work of a program on one device.

    Attributes:
        flops: floating-point operations of matrix products and convolutions.
        bytes: bytes read from and written to memory.
        launches: number of operations.
        sent: bytes that take part in collectives.
        seconds: estimated time.
    """

    flops: float = 0.0
    bytes: float = 0.0
    launches: float = 0.0
    sent: float = 0.0
    seconds: float = 0.0

    def plus(self, other: "Work", times: float = 1.0) -> "Work":
        """Returns the sum of this work and ``times`` that of another."""
        return Work(*(a + times * b for a, b in zip(self, other, strict=True)))


class RoundShape(NamedTuple):
    """The work of a round, on the busiest device unless stated otherwise.

    Attributes:
        samples: training samples on all devices.
        steps: local steps, summed over chunks.
        trips: iterations of loops by the name of their scope, averaged over chunks.
    """

    samples: int
    steps: int
    trips: dict[str, float]


def work(program: hlo.Program, on: Accelerator, trips: Mapping[str, float]) -> Work:
    """Returns the work of a program.

    Args:
        program: a compiled program.
        on: the device.
        trips: iterations of loops by the name of their scope, for loops whose trip count the
            compiler does not know; 1 for all others.
    """
    known: dict[str, Work] = {}

    def of(name: str) -> Work:
        if name not in known:
            known[name] = functools.reduce(Work.plus, map(one, program.computations[name]), Work())
        return known[name]

    def one(i: hlo.Instruction) -> Work:
        kind = i.opcode.removesuffix("-start")
        if i.opcode in _FREE or i.opcode.endswith(("-done", "-update")):
            return Work()
        if i.opcode == "while":
            inner = functools.reduce(Work.plus, map(of, i.called), Work(seconds=on.loop))
            times = program.trips(i)
            return Work().plus(inner, trips.get(i.scope, 1.0) if times is None else times)
        if i.opcode == "conditional":
            return max((of(name) for name in i.called), key=lambda w: w.seconds)
        if kind in ("call", "async"):
            return functools.reduce(Work.plus, map(of, i.called), Work())
        if kind in COLLECTIVES:
            sent = sum(s.nbytes for name in i.operands for s in program.shapes[name])
            passes = 2.0 if kind == "all-reduce" else 1.0
            return Work(launches=1, sent=sent, seconds=on.latency + passes * sent / on.link)
        moved = hlo_cost.bytes_moved(program, i, on.on_chip)
        found = list(hlo_cost.products(program, i))
        products = sum(f / _peak(p, on) for p, f in found)
        seconds: float = max(on.launch, moved / on.bandwidth, products)
        if on.clock and i.cycles is not None:
            seconds = i.cycles / on.clock
        return Work(sum(f for _, f in found), moved, 1.0, 0.0, seconds)

    return of(program.entry)


def _peak(product: hlo.Instruction, on: Accelerator) -> float:
    """Returns the peak for the type and precision of a product."""
    if product.shapes[0].dtype == "bf16":
        return on.peak["bf16"]
    found = re.search(r"operand_precision=\{(\w+)", product.attributes)
    return on.peak[found[1] if found else "default"]


def round_shape(problem: Problem) -> RoundShape:
    """Assigns the clients of the first round to devices and returns the resulting work."""
    phase, data = problem.phases[0], problem.data
    spec, local = phase.spec, phase.spec.local
    cohort = draw_cohort(spec, problem.keys, data.log_weights, jnp.int32(phase.first))
    sizes = data.size(np.arange(len(problem.seeds))[:, None], np.asarray(cohort))
    steps = local.num_steps(jnp.asarray(sizes))
    items, _, _ = assign_clients(cohort, steps, spec.mesh.devices.size, spec.clients_per_chunk)
    longest = np.asarray(items.num_steps).max(-1)  # of every chunk of every device
    longest = longest[longest.sum(-1).argmax()]
    blocks = -(-longest // local.steps_per_draw)
    loops = blocks.sum() if local.steps_per_draw > 1 else len(longest)
    return RoundShape(
        samples=int(jnp.sum(local.samples_used(jnp.asarray(sizes), steps))),
        steps=int(longest.sum()),
        trips={
            "draws": float(blocks.mean()),
            "steps": float(longest.sum() / max(loops, 1)),
            "batches": float(np.mean(-(-sizes // problem.info.batch_rows))),
            "walk": _WALK,
        },
    )
