"""What ``reproduce --dry_run`` and ``--list`` print."""

from collections.abc import Sequence

import jax

from experiments import estimate, figures, flops, papers, printed
from experiments.cells import Cell, command, scaled_sentences
from experiments.executor import config_from
from fedjax_skew.report.store import Record


def describe(heading: str, cells: Sequence[Cell]) -> str:
    """Every cell with its state and cost, and the sum of what is left to run.

    Args:
        heading: what the cells belong to, ``"FedVLS Table 1"``.
        cells: all of them.
    """
    if not cells:
        return f"{heading}: nothing to train."
    records = [cell.record() for cell in cells]
    speeds = measured_speeds(records)
    costs = [estimate.cost(cell.config) for cell in cells]
    peak = flops.matmul_peak()
    times = [
        cost.seconds(speeds.get(cell.config.model) or peak * estimate.usual_share(cell.config))
        for cell, cost in zip(cells, costs, strict=True)
    ]
    lines = [f"{'state':9s}{'FLOP':>9s}{'memory':>10s}{'time':>10s}  cell"]
    for cell, record, cost, seconds in zip(cells, records, costs, times, strict=True):
        if record.finished:
            seconds = float(record.summary["wall_seconds"])
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
            f"Left: {sum(costs[i].flops for i in left):.1e} FLOP, at most "
            f"{max(costs[i].memory for i in left) / 1e9:.2f} GB at a time, about "
            f"{duration(sum(times[i] for i in left))} one after another on this machine "
            f"({len(jax.devices())} x {device.device_kind})."
        )
        known = sorted({cells[i].config.model for i in left} & set(speeds))
        basis = f"a matrix product at {peak / 1e9:.0f} GFLOP/s and the usual share of it"
        if known:
            basis = f"finished runs ({', '.join(known)}), otherwise {basis}"
        lines.append(f"Times are rough: from {basis}.")
    scaled = scaled_sentences(cells)
    if scaled:
        lines += ["Smaller than in the paper:", *(f"  {sentence}" for sentence in scaled)]
    return "\n".join(lines)


def weights(cells: Sequence[Cell]) -> dict[str, float]:
    """Estimated work of every cell, in seconds of a fast core."""
    return {cell.run.name: estimate.cost(cell.config).seconds(1e11) for cell in cells}


def measured_speeds(records: Sequence[Record]) -> dict[str, float]:
    """FLOP/s by model, from finished runs on this kind of device."""
    kind = jax.devices()[0].device_kind
    totals: dict[str, list[float]] = {}
    for record in records:
        if record.finished and record.summary.get("device", {}).get("kind") == kind:
            flops = estimate.cost(config_from(record.config)).flops
            total = totals.setdefault(record.config["model"], [0.0, 0.0])
            total[0] += flops
            total[1] += float(record.summary["wall_seconds"])
    return {model: flops / max(seconds, 1e-9) for model, (flops, seconds) in totals.items()}


def listing() -> str:
    """All tables and figures of the papers with the command for each."""
    lines: list[str] = []
    everything = [(table, printed.caption(table)) for table in printed.table_names()]
    everything += [(name, figures.figure(name).caption) for name in papers.figure_names()]
    for paper in dict.fromkeys(name.partition("/")[0] for name, _ in everything):
        mine = [pair for pair in everything if pair[0].startswith(f"{paper}/")]
        lines += ["", printed.source(mine[0][0])]
        for name, caption in mine:
            lines += [f"  {papers.title(name)}. {caption}", f"    {command(name)}"]
    return "\n".join(lines[1:])


def duration(seconds: float) -> str:
    """``"3.2 h"``."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
