"""Updates the generated parts of documentation pages.

    python -m experiments.pages

``configs/<paper>.md``, ``README.md`` and the pages about devices contain blocks between
``<!-- generated: NAME -->`` and ``<!-- end -->``. This command rewrites these blocks. The text
around them is written by hand.
"""

import pathlib
import re
from collections.abc import Callable, Sequence

from configs.claims import CLAIMS
from experiments import (
    accelerator_pages,
    app,
    cells,
    claims_table,
    papers,
    printed,
    recipes,
    values,
)
from experiments.papers import Paper
from fedjax_skew.report import names
from fedjax_skew.report.render import escape_markdown
from fedjax_skew.runs import rundir

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments" / "results" / "runs.csv"
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(argv: Sequence[str]) -> None:
    """Updates all pages and prints their paths."""
    for path in write_all():
        print(path.relative_to(ROOT))


def write_all() -> list[pathlib.Path]:
    """Updates all pages and returns their paths."""
    for path in paths():
        rundir.write_text(path, render(path))
    return paths()


def paths() -> list[pathlib.Path]:
    """Returns the paths of all pages with generated blocks."""
    return [
        ROOT / "README.md",
        *(ROOT / "configs" / f"{key}.md" for key in printed.papers()),
        ROOT / "docs" / "guides" / "devices.md",
        ROOT / "experiments" / "results" / "accelerators.md",
    ]


def render(path: pathlib.Path) -> str:
    """Returns the text of a page with its blocks updated."""

    def fill(match: re.Match[str]) -> str:
        opening, name, closing = match.groups()
        if name in accelerator_pages.BLOCKS:
            text = accelerator_pages.BLOCKS[name]()
        elif path.name == "README.md":
            text = claims_overview()
        else:
            text = BLOCKS[name](papers.paper(path.stem))
        return f"{opening}\n{text.strip()}\n\n{closing}"

    return _BLOCK.sub(fill, path.read_text(encoding="utf-8"))


def about(paper: Paper) -> str:
    """Returns the title and venue of a paper and a description of its method."""
    return f"*{printed.source(paper.key)}*\n\n{paper.about}"


def tables(paper: Paper) -> str:
    """Returns the paper's tables and figures with their commands."""
    lines = ["| | what it shows | command |", "| :-- | :-- | :-- |"]
    for name in papers.names_of(paper.key):
        title = papers.title(name).partition(" ")[2]
        lines.append(f"| {title} | {papers.caption(name)} | `{cells.command(name)}` |")
    return "\n".join(lines)


def recipe(paper: Paper) -> str:
    """Returns every value of the recipe with its source."""
    sources = "; ".join(f"{key}: {words}" for key, words in recipes.SOURCES.items())
    lines = [f"Sources: {sources}.", "", "| field | value | where | source | note |"]
    lines.append("| :-- | :-- | :-- | :-- | :-- |")
    for s in paper.recipe:
        cells_ = (f"`{s.field}`", s.shown, s.where, s.source, s.note)
        lines.append("| " + " | ".join(cells_) + " |")
    lines += ["", *(f"- {note.text} ({note.source})" for note in paper.notes)]
    for name, change in paper.variants.items():
        lines.append(f"- `--variant={name}`: {_sentence(change)}")
    lines.append(f"- `--scale=cpu`: {_sentence(paper.cpu)}")
    lines.append(f"- `--scale=short`, in addition to `cpu`: {_sentence(paper.short)}")
    lines.append(f"- Reported: {names.reported(paper.reported)}.")
    if paper.independent:
        lines += ["", "Results of others:", "", *(f"- {text}" for text in paper.independent)]
    return "\n".join(lines)


def claims(paper: Paper) -> str:
    """Returns the paper's claims with the verdicts on them."""
    mine = [claim for claim in CLAIMS if claim.paper == paper.key]
    lines = claims_table.build(mine, values.read(RESULTS), CLAIMS)
    return claims_table.summary(lines) + "\n\n" + "\n".join(claims_table.rows(lines))


def claims_overview() -> str:
    """Returns all claims, paper by paper."""
    lines = claims_table.build(CLAIMS, values.read(RESULTS), CLAIMS)
    return claims_table.summary(lines) + "\n\n" + claims_table.sections(lines, "###")


def _sentence(function: Callable[..., object]) -> str:
    return escape_markdown((function.__doc__ or "").partition("\n\n")[0])


BLOCKS: dict[str, Callable[[Paper], str]] = {
    "about": about,
    "tables": tables,
    "recipe": recipe,
    "claims": claims,
}


if __name__ == "__main__":
    app.run(main)
