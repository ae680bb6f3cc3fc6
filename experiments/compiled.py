"""Compiles configurations for devices that need not be present; reports memory, work and time."""

import dataclasses
import time
from typing import Any

import jax
import ml_collections

from experiments import cells, estimate, hlo, roofline
from experiments.accelerators import ACCELERATORS, devices
from fedjax_skew.data import datasets
from fedjax_skew.simulation.arrays import abstract_arrays
from fedjax_skew.simulation.problem import Problem, build
from fedjax_skew.simulation.state import abstract_state
from fedjax_skew.simulation.tracing import trace_evaluation, trace_rounds

_OWN_DATA = ("", "labelled")


@dataclasses.dataclass(frozen=True)
class Report:
    """A compiled configuration; numbers are per device unless stated otherwise.

    Attributes:
        target: name of the device.
        devices: number of devices.
        model: the model of the configuration.
        method: the method of the configuration.
        conv_impl: the convolution of the configuration.
        clients_per_chunk: the chunk size, at most the number of clients that a device trains.
        chosen: whether the chunk size was chosen automatically for the device.
        arguments_gb: memory of state and data.
        temporaries_gb: memory that the rounds need in addition.
        peak_gb: all memory, including results that cannot reuse that of the arguments.
        fits: whether the device has enough memory.
        largest_chunk: the largest ``clients_per_chunk`` that fits; 0 if unknown.
        collectives: number of operations between devices, by kind.
        step_launches: number of operations in one local step.
        round_gflop: floating-point operations of the products of a round, in 1e9.
        round_gb: memory traffic of a round.
        round_ms: estimated time of a round.
        samples_per_second: training samples per second on all devices, at that estimate.
        evaluation_ms: estimated time of an evaluation.
        compile_cpu_s: CPU time of compiling the rounds.
    """

    target: str
    devices: int
    model: str
    method: str
    conv_impl: str
    clients_per_chunk: int
    chosen: bool
    arguments_gb: float
    temporaries_gb: float
    peak_gb: float
    fits: bool
    largest_chunk: int
    collectives: str
    step_launches: int
    round_gflop: float
    round_gb: float
    round_ms: float
    samples_per_second: float
    evaluation_ms: float
    compile_cpu_s: float


@dataclasses.dataclass(frozen=True)
class TableReport:
    """The cells of a table that share a network.

    Attributes:
        table: name of the table.
        only: the selected cells.
        target: name of the device.
        devices: number of devices of each run.
        model: the network.
        method: method of the cell that was compiled to estimate times.
        peak_gb: memory per device of that cell.
        largest: method of the cell that needs the most memory.
        largest_gb: memory per device of that cell.
        round_ms: estimated time of a round.
        run_hours: estimated time of the compiled cell, with all of its seeds.
        cells: number of cells.
        table_hours: estimated time of all cells, one after another.
    """

    table: str
    only: str
    target: str
    devices: int
    model: str
    method: str
    peak_gb: float
    largest: str
    largest_gb: float
    round_ms: float
    run_hours: float
    cells: int
    table_hours: float


def words(found: Report | TableReport) -> dict[str, str]:
    """Returns every field as text, numbers with three digits."""
    values = dataclasses.asdict(found).items()
    return {k: f"{v:.3g}" if isinstance(v, float) else str(v) for k, v in values}


def report(config: ml_collections.ConfigDict, target: str, *, fit: bool = False) -> Report:
    """Compiles the rounds and the evaluation of a configuration for a target.

    Args:
        config: the configuration; ``num_devices=0`` means all devices of one host.
        target: a key of ``ACCELERATORS``.
        fit: compile a second chunk size to find the largest one that fits.
    """
    on = ACCELERATORS[target]
    problem = _problem(config, target)
    phase = problem.phases[0]
    state, arrays = abstract_state(problem), abstract_arrays(problem)
    rounds, seconds = _compile(trace_rounds(problem, phase, state, arrays), on.platform)
    scores, _ = _compile(trace_evaluation(phase, state, arrays).scores, on.platform)
    shape = roofline.round_shape(problem)
    program = hlo.parse(rounds.as_text() or "")
    work = roofline.work(program, on, shape.trips)
    once = roofline.work(program, on, shape.trips | {"steps": 0.0})
    evaluation = roofline.work(hlo.parse(scores.as_text() or ""), on, {})
    memory: Any = rounds.memory_analysis()
    return Report(
        target=target,
        devices=phase.spec.mesh.devices.size,
        model=config.model,
        method=config.method,
        conv_impl=config.conv_impl,
        clients_per_chunk=min(phase.spec.clients_per_chunk, _most(problem)),
        chosen=config.clients_per_chunk == 0,
        arguments_gb=memory.argument_size_in_bytes / 1e9,
        temporaries_gb=memory.temp_size_in_bytes / 1e9,
        peak_gb=_peak(memory) / 1e9,
        fits=_peak(memory) < on.memory,
        largest_chunk=_largest_chunk(config, problem, _peak(memory), target) if fit else 0,
        collectives=", ".join(f"{n} {name}" for name, n in collectives(program).items()),
        step_launches=round((work.launches - once.launches) / max(shape.steps, 1)),
        round_gflop=work.flops / 1e9,
        round_gb=work.bytes / 1e9,
        round_ms=1e3 * work.seconds,
        samples_per_second=shape.samples / work.seconds,
        evaluation_ms=1e3 * evaluation.seconds,
        compile_cpu_s=seconds,
    )


def collectives(program: hlo.Program) -> dict[str, int]:
    """Counts the operations between devices in a compiled program."""
    kinds = [i.opcode.removesuffix("-start") for c in program.computations.values() for i in c]
    found = {name: kinds.count(name) for name in roofline.COLLECTIVES}
    return {name: number for name, number in found.items() if number}


def _problem(config: ml_collections.ConfigDict, target: str) -> Problem:
    """Builds the problem on random data of the right size, or on generated data where possible."""
    info = datasets.find(config.dataset.name)
    known = info is not None and info.num_train and info.source != "none"
    dataset = estimate.random_dataset(estimate.size(config)) if known else None
    return build(config, dataset=dataset, devices=devices(target))


def _compile(traced: jax.stages.Traced, platform: str) -> tuple[jax.stages.Compiled, float]:
    """Compiles a program and returns it with the CPU time of compilation in seconds."""
    lowered, began = traced.lower(), time.process_time()
    # Autotuning would need a device.
    options = {"xla_gpu_autotune_level": 0} if platform == "cuda" else {}
    compiled = lowered.compile(compiler_options=options)
    return compiled, time.process_time() - began


def _peak(memory: Any) -> int:
    """Returns the bytes of arguments, temporaries, and results that reuse neither."""
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return memory.argument_size_in_bytes + memory.temp_size_in_bytes + results


def _most(problem: Problem) -> int:
    """Returns the largest number of clients that a device trains in a round."""
    devices = problem.phases[0].spec.mesh.devices.size
    return -(-len(problem.seeds) * problem.info.cohort_size // devices)


def _largest_chunk(
    config: ml_collections.ConfigDict, problem: Problem, peak: int, target: str
) -> int:
    """Extrapolates the memory of two chunk sizes to the largest chunk that fits."""
    most = _most(problem)
    chunk = min(problem.phases[0].spec.clients_per_chunk, most)
    other = config.copy_and_resolve_references()
    other.clients_per_chunk = min(2 * chunk, most) if chunk < most else chunk // 2
    if not other.clients_per_chunk:
        return most
    made = _problem(other, target)
    traced = trace_rounds(made, made.phases[0], abstract_state(made), abstract_arrays(made))
    compiled, _ = _compile(traced, ACCELERATORS[target].platform)
    found = _peak(compiled.memory_analysis())
    slope = (found - peak) / (other.clients_per_chunk - chunk)
    if slope <= 0:
        return most
    return int(min(most, chunk + (ACCELERATORS[target].memory - peak) // slope))


def report_table(
    name: str, target: str, *, only: str = "", num_devices: int = 0
) -> list[TableReport]:
    """Compiles two cells per network of a table and estimates all cells from them.

    The cell that needs the most memory determines whether the table fits; cells whose server has
    another dataset are not considered. The times of other cells are extrapolated from the first one
    by their numbers of operations.

    Args:
        name: the table, such as ``fedlf/table1``.
        target: a key of ``ACCELERATORS``.
        only: the cells to select, as in ``experiments.reproduce``.
        num_devices: number of devices of a run; 0 means all devices of one host.
    """
    groups: dict[Any, list[ml_collections.ConfigDict]] = {}
    for cell in cells.plan(name, "", only=only):
        cell.config.num_devices = num_devices
        key = cell.config.model, estimate.size(cell.config).shape
        groups.setdefault(key, []).append(cell.config)
    made = []
    for configs in groups.values():
        costs = [estimate.cost(config) for config in configs]
        first = report(configs[0], target)
        own = [n for n, c in enumerate(configs) if c.server_data.unlabelled_dataset in _OWN_DATA]
        large = max(own, key=lambda n: costs[n].memory)
        largest = report(configs[large], target) if large else first
        config = configs[0]
        seconds = config.rounds * (first.round_ms + first.evaluation_ms / config.eval_every) / 1e3
        total = seconds * sum(cost.flops for cost in costs) / costs[0].flops
        made.append(
            TableReport(
                table=name,
                only=only,
                target=target,
                devices=first.devices,
                model=config.model,
                method=config.method,
                peak_gb=first.peak_gb,
                largest=largest.method,
                largest_gb=largest.peak_gb,
                round_ms=first.round_ms,
                run_hours=seconds / 3600,
                cells=len(configs),
                table_hours=total / 3600,
            )
        )
    return made
