"""Writes the figures of the papers from finished runs."""

import os
import pathlib
import textwrap
from collections.abc import Sequence

from experiments import figure_drawings, papers
from experiments.cells import Cell, machines, provenance, scaled_sentences
from experiments.figure_drawings import Item
from experiments.papers import Figure
from fedjax_skew.report import style
from fedjax_skew.runs import rundir


def write(
    name: str, cells: Sequence[Cell], workdir: str | os.PathLike[str], command: str = ""
) -> list[pathlib.Path]:
    """Draws what is finished to ``<paper>_figure<N>.png`` and ``.pdf``, with a page ``.md``.

    Returns:
        The paths of the files; none if no run is finished yet.
    """
    what, folder = papers.figure(name), pathlib.Path(workdir)
    items = [Item(row, cell, cell.record()) for cell in cells for row in cell.run.rows]
    items.sort(key=lambda item: what.position(item.row))
    missing = [item for item in items if what.trained and not item.record.finished]
    done = [item for item in items if not what.trained or item.record.finished]
    if not done:
        return []
    note = _note(what, cells, missing)
    stem = name.replace("/", "_")
    made: list[pathlib.Path] = []
    for suffix, drawing in figure_drawings.KINDS[what.kind](done, **what.options).items():
        if note:
            style.caption(drawing, note)
        made += style.save(drawing, folder / f"{stem}{suffix}")
    page = folder / f"{stem}.md"
    rundir.write_text(page, _page(name, made, done, note, command))
    return [*made, page]


def _note(what: Figure, cells: Sequence[Cell], missing: Sequence[Item]) -> str:
    """Returns how a picture differs from the paper's recipe; empty if it does not."""
    # No figure shows the groups of classes that a smoke run changes.
    scaled = tuple(s for s in scaled_sentences(cells) if not s.startswith("group_thresholds"))
    if not what.trained:
        scaled = tuple(s for s in scaled if s.startswith(("dataset", "num_clients", "partition")))
    words = []
    if scaled:
        words += ["Smaller than in the paper:", *scaled]
        if what.trained and not any(s.startswith("seeds:") for s in scaled):
            words.append(f"seeds: {max(cell.config.num_seeds for cell in cells)}.")
    failed = sum(item.record.status == "failed" for item in missing)
    for count, state in ((len(missing) - failed, "not finished"), (failed, "failed")):
        if count:
            words.append(f"Left out: {count} {state}.")
    return " ".join(words)


def _page(
    name: str, made: Sequence[pathlib.Path], items: Sequence[Item], note: str, command: str
) -> str:
    what, title = papers.figure(name), papers.title(name)
    caption = f"In the paper: {what.caption}" if note else what.caption
    lines = [f"### {title}", "", caption, ""]
    lines += [f"![{title}]({path.name})" for path in made if path.suffix == ".png"]
    lines += ["", *([note, ""] if note else [])]
    records = {item.cell.directory: item.record for item in items}
    notes = [
        *(f"Chosen for this figure: {text}" for text in what.chosen),
        *provenance(name, [item.row for item in items]),
        *machines(records.values()),
    ]
    lines += [textwrap.fill(f"- {text}", 100, subsequent_indent="  ") for text in notes]
    if command:
        lines += ["", "Command:", "", f"    {command}"]
    return "\n".join(lines) + "\n"
