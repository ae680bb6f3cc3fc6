"""Formats the output of ``--dry_run`` and ``--list``."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from experiments import estimate, papers, printed, speed
from experiments.cells import Cell, command, scaled_sentences
from experiments.executor import config_from
from fedjax_skew.runs.store import Record


def describe(heading: str, cells: Sequence[Cell]) -> str:
    """Describes the state and cost of every cell, and the total cost of what is left to run.

    Args:
        heading: what the cells belong to, such as ``"FedVLS Table 1"``.
        cells: the cells.
    """
    if not cells:
        return f"{heading}: nothing to train."
    records = [cell.record() for cell in cells]
    known = finished_speeds(records)
    costs = [estimate.cost(cell.config) for cell in cells]
    times = [
        float(record.summary["wall_seconds"])
        if record.finished
        else _seconds(cell, cost.flops, known)
        for cell, record, cost in zip(cells, records, costs, strict=True)
    ]
    lines = [f"{'state':9s}{'FLOP':>9s}{'memory':>10s}{'time':>10s}  cell"]
    for cell, record, cost, seconds in zip(cells, records, costs, times, strict=True):
        lines.append(
            f"{record.status:9s}{cost.flops:9.1e}{cost.memory / 1e9:7.2f} GB"
            f"{duration(seconds):>10s}  {cell.title} {cell.config.model}, "
            f"{cell.config.rounds} rounds, {cell.config.num_seeds} seeds"
        )
    left = [i for i, record in enumerate(records) if not record.finished]
    device = jax.devices()[0]
    lines += [
        "",
        f"{heading}: {len(cells)} cells, {len(cells) - len(left)} finished, {len(left)} to run.",
    ]
    if left:
        lines.append(
            f"Remaining: {sum(costs[i].flops for i in left):.1e} FLOP, at most "
            f"{max(costs[i].memory for i in left) / 1e9:.2f} GB at a time, about "
            f"{duration(sum(times[i] for i in left))} one after another on this machine "
            f"({len(jax.devices())} x {device.device_kind})."
        )
        used = sorted({_kind(cells[i].config.to_dict())[0] for i in left} & {k for k, _ in known})
        basis = "a few rounds on random data, timed now"
        if used:
            basis = f"finished runs of the same model ({', '.join(used)}), otherwise {basis}"
        lines.append(f"Times are from {basis}.")
    scaled = scaled_sentences(cells)
    if scaled:
        lines += ["Smaller than in the paper:", *(f"  {sentence}" for sentence in scaled)]
    return "\n".join(lines)


def weights(cells: Sequence[Cell]) -> dict[str, float]:
    """Returns the estimated work of every cell, in FLOP."""
    return {cell.run.name: estimate.cost(cell.config).flops for cell in cells}


def finished_speeds(records: Sequence[Record]) -> dict[tuple[str, str], float]:
    """Returns FLOP/s by model and augmentation, from finished runs on this kind of device."""
    kind = jax.devices()[0].device_kind
    totals: dict[tuple[str, str], list[float]] = {}
    for record in records:
        if record.finished and record.summary.get("device", {}).get("kind") == kind:
            total = totals.setdefault(_kind(record.config), [0.0, 0.0])
            total[0] += estimate.cost(config_from(record.config)).flops
            total[1] += float(record.summary["wall_seconds"])
    return {key: flops / max(seconds, 1e-9) for key, (flops, seconds) in totals.items()}


def _kind(config: Mapping[str, Any]) -> tuple[str, str]:
    return config["model"], config["augment"]


def _seconds(cell: Cell, flops: float, known: Mapping[tuple[str, str], float]) -> float:
    """Estimates the time of a cell from finished runs, or from a measurement on this machine."""
    key = _kind(cell.config.to_dict())
    if key in known:
        return flops / known[key]
    timed = speed.measure(cell.config)
    return flops / timed.flops + 2 * timed.compile_seconds  # The rounds and the evaluation.


def listing() -> str:
    """Returns all tables and figures of the papers, each with its command."""
    lines: list[str] = []
    for paper in printed.papers():
        lines += ["", printed.source(paper)]
        for name in papers.names_of(paper):
            lines += [f"  {papers.title(name)}. {papers.caption(name)}", f"    {command(name)}"]
    return "\n".join(lines[1:])


def duration(seconds: float) -> str:
    """Formats a duration, such as ``"3.2 h"``."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
