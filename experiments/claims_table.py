"""Renders the verdicts on the claims, with the numbers behind them, as markdown and CSV."""

import csv as csv_
import io
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from experiments import cells, printed, verdicts
from experiments.values import Value
from experiments.verdicts import UNDECIDED, Claim, Contrast, Measured, Verdict
from fedjax_skew.report import names

_CSV = (
    *("id", "paper", "claim", "scale", "verdict", "contrast", "paper_value", "mean", "spread"),
    *("seeds", "values", "reason", "command"),
)


class Line(NamedTuple):
    """A claim with its verdict, at the largest scale that decides it or measures most of it.

    A claim that fails at one scale remains undecided if larger scales, at which not all of its
    contrasts are measured, decide those contrasts the other way.

    Attributes:
        verdict: the verdict.
        scale: the scale at which it was measured; empty if nothing was measured.
        setting: what was trained, such as ``"simple_cnn, 400 rounds, 1 epochs"``.
    """

    verdict: Verdict
    scale: str
    setting: str


def build(claims: Sequence[Claim], values: Sequence[Value], among: Sequence[Claim]) -> list[Line]:
    """Returns one line per claim.

    Args:
        claims: the claims to judge.
        values: everything that was measured, at all scales.
        among: all claims, which together determine how much a contrast varies with the seed.
    """
    by_scale: dict[str, dict[tuple[str, str, str], dict[int, float]]] = {}
    cost: dict[tuple[str, str], list[float]] = {}
    # Numbers are only compared with others of the same kind.
    without = {(value.name, value.scale) for value in values if value.late is None}
    for value in values:
        place = (value.name, value.row, value.column)
        number = value.value if (value.name, value.scale) in without else value.late
        assert number is not None
        by_scale.setdefault(value.scale, {}).setdefault(place, {})[value.seed] = number
        paper = value.name.partition("/")[0]
        cost.setdefault((paper, value.scale), []).append(value.seconds)
    lines = []
    contrasts = list(dict.fromkeys(c for claim in among for c in claim.contrasts))
    for claim in claims:
        found = []
        for scale, numbers in by_scale.items():
            verdict = verdicts.judge(claim, numbers, contrasts)
            if verdict.decisive is not None:
                seconds = cost[claim.paper, scale]
                found.append((verdict, scale, sum(seconds) / len(seconds)))
        if not found:
            lines.append(Line(verdicts.judge(claim, {}, ()), "", ""))
            continue
        found.sort(key=lambda f: (f[1] == "full", f[2]), reverse=True)
        larger = [[f[0] for f in found[:n]] for n in range(len(found))]
        decided = [
            f
            for f, others in zip(found, larger, strict=True)
            if f[0].word != UNDECIDED and not _overturned(f[0], others)
        ]
        # Without a decision, the scale with the most measured contrasts says most.
        undecided = [f for f in found if f[0].word == UNDECIDED]
        undecided.sort(key=lambda f: -sum(bool(m.values) for m in f[0].measured))
        verdict, scale, _ = (decided or undecided)[0]
        lines.append(Line(verdict, scale, _setting(claim, scale, values)))
    return lines


def _overturned(verdict: Verdict, larger: Sequence[Verdict]) -> bool:
    """Returns whether larger scales decide every contrast on which a claim fails for the claim."""
    positive = {m.contrast for other in larger for m in other.measured if m.sign > 0}
    negative = {m.contrast for m in verdict.measured if m.sign < 0}
    return bool(negative) and negative <= positive


def markdown(lines: Sequence[Line]) -> str:
    """Returns a page with one section per paper."""
    text = [
        "# Claims of the papers",
        "",
        summary(lines),
        "",
        "Every claim asserts that some contrasts between numbers are positive. The tables show the "
        "contrast with the smallest value, on which the claim depends; `claims.csv` has all "
        "contrasts. Measured values are means over seeds ± spread. Accuracies of tables are means "
        "over the last quarter of the rounds where all evaluations of the table's runs are known, "
        "and otherwise what the paper reports: a single round varies by several points when few "
        "clients take part. The verdict is computed by the rule stated in "
        "`experiments/verdicts.py`.",
    ]
    return "\n".join([*text, "", sections(lines)])


def sections(lines: Sequence[Line], level: str = "##") -> str:
    """Returns one section per paper with its table and command, under headings of a level."""
    text = []
    for paper in dict.fromkeys(line.verdict.claim.paper for line in lines):
        mine = [line for line in lines if line.verdict.claim.paper == paper]
        text += [
            f"{level} {_paper(paper)}",
            "",
            *rows(mine),
            "",
            "    " + _command(paper, mine),
            "",
        ]
    return "\n".join(text)


def rows(lines: Sequence[Line]) -> list[str]:
    """Returns the lines of a markdown table."""
    head = ["| claim | paper | measured | verdict | scale |", "| :-- | :-- | :-- | :-- | :-- |"]
    return [*head, *(_row(line) for line in lines)]


def csv(lines: Sequence[Line]) -> str:
    """Returns one line per contrast."""
    buffer = io.StringIO()
    writer = csv_.writer(buffer, lineterminator="\n")
    writer.writerow(_CSV)
    for line in lines:
        claim = line.verdict.claim
        for measured in line.verdict.measured:
            writer.writerow(
                [
                    claim.id,
                    claim.paper,
                    claim.sentence,
                    line.scale,
                    line.verdict.word,
                    measured.contrast.label,
                    _number(paper_value(measured.contrast)),
                    _number(measured.mean),
                    _number(measured.spread),
                    len(measured.values),
                    ";".join(map(_number, measured.values)),
                    line.verdict.reason,
                    _command(claim.id, [line]),
                ]
            )
    return buffer.getvalue()


def summary(lines: Sequence[Line]) -> str:
    """Returns a sentence with the number of claims per verdict."""
    words = [line.verdict.word for line in lines]
    held, failed, open_ = (words.count(w) for w in (verdicts.HOLDS, verdicts.FAILS, UNDECIDED))
    return (
        f"Verdicts on {len(lines)} claims: holds {held}, does not hold {failed}, undecided {open_}."
    )


def paper_value(contrast: Contrast) -> float:
    """Returns the contrast of the numbers that the paper prints; nan if it prints none."""
    numbers: dict[tuple[str, str, str], dict[int, float]] = {}
    for name in {term.name for term in contrast.terms}:
        if name in printed.table_names():
            for row in printed.load(name):
                numbers[name, row.row, row.column] = {0: row.value}
    values = verdicts.evaluate(contrast, numbers)
    return values[0] if values else math.nan


def _row(line: Line) -> str:
    verdict = line.verdict
    claim = verdict.claim
    paper = claim.printed or _smallest(
        (contrast.label, paper_value(contrast)) for contrast in claim.contrasts
    )
    decisive = verdict.decisive
    measured = _shown(decisive) if decisive else "--"
    word = f"**{verdict.word}**" if verdict.word != UNDECIDED else verdict.word
    if verdict.reason:
        word += f" ({verdict.reason})"
    return f"| {claim.sentence} | {paper} | {measured} | {word} | {line.setting or '--'} |"


def _shown(measured: Measured) -> str:
    spread = "" if math.isnan(measured.spread) else f" ± {measured.spread:.2f}"
    seeds = f"{len(measured.values)} seed{'s' if len(measured.values) > 1 else ''}"
    return f"{measured.contrast.label} = {measured.mean:+.2f}{spread} ({seeds})"


def _smallest(pairs: Iterable[tuple[str, float]]) -> str:
    label, value = min(pairs, key=lambda pair: pair[1])
    return f"{label} = {value:+.2f}"


def _setting(claim: Claim, scale: str, values: Sequence[Value]) -> str:
    """Returns what was trained for a claim at a scale."""
    places = {term[1:] for term in claim.terms}
    mine = [v for v in values if v.scale == scale and (v.name, v.row, v.column) in places]
    found = dict.fromkeys(f"{v.model}, {v.rounds} rounds, {v.local}" for v in mine if not v.note)
    noted = dict.fromkeys(f"{names.method(v.row)} {v.note}" for v in mine if v.note)
    return f"{scale}: " + "; ".join((*found, *noted))


def _command(only: str, lines: Sequence[Line]) -> str:
    scales = dict.fromkeys(line.scale for line in lines if line.scale) or {"cpu": None}
    flags = cells.scale_flags(next(iter(scales)))
    return f"python -m experiments.claims --only={only} {flags} --data_dir=DIR --workdir=DIR"


def _paper(paper: str) -> str:
    table = next(name for name in printed.table_names() if name.startswith(f"{paper}/"))
    return printed.title(table).partition(" Table")[0]


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
