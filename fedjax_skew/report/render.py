"""Rendering of result tables as Markdown, CSV and LaTeX.

Every format is a pure function from a ``result_table.Table`` to a string. All three contain the
mean and the standard deviation, the number of seeds, the reported quantity, the paper's number and
the gap to it, the rank agreement with the paper, failures with their reason, what was scaled down,
and footnotes.
"""

import csv
import io
import itertools
import re

from fedjax_skew.report import result_table
from fedjax_skew.report.result_table import Table

_MARKDOWN = re.compile(r"([\\`*_|<>\[\]#~$])")
_CSV_COLUMNS = [
    *("table", "row", "column", "reported", "seeds", "mean", "std", "values"),
    *("paper_reported", "paper", "paper_std", "gap", "place", "spearman", "spearman_methods"),
    *("megabytes", "failure", "notes", "scaled", "footnotes"),
]
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "\u00d7": r"$\times$",
    "\u2212": r"$-$",
    "\u2013": "--",
}


class _Notes:
    """Numbers of sentences in order of first use; equal sentences share a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def numbers(self, texts: tuple[str, ...]) -> str:
        """Returns the numbers of sentences, such as ``"1,3"``, and adds those that are new."""
        for text in texts:
            if text not in self.texts:
                self.texts.append(text)
        return ",".join(str(i) for i, text in enumerate(self.texts, 1) if text in texts)


def escape_markdown(text: str) -> str:
    """Escapes text for one line of Markdown, also inside a table cell."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def escape_latex(text: str) -> str:
    """Escapes text for one line of LaTeX."""
    return "".join(_LATEX.get(char, char) for char in " ".join(text.split()))


def to_markdown(table: Table) -> str:
    """Returns GitHub-flavoured Markdown: a heading, the table, and notes below it."""
    notes = _Notes()

    def marked(text: str, remarks: tuple[str, ...]) -> str:
        numbers = notes.numbers(remarks)
        return f"{text} [{numbers}]" if numbers else text

    heads = [escape_markdown(f"{c.group} {c.text}".strip()) for c in table.columns]
    lines = [f"### {escape_markdown(table.title)}", ""]
    if table.caption:
        lines += [escape_markdown(table.caption), ""]
    heads += [result_table.MEGABYTES] * table.has_megabytes
    lines += [_pipe(["Method", *heads]), _pipe([":--", *["--:"] * len(heads)])]
    places = {column.key: result_table.places(table, column) for column in table.columns}
    for row in table.rows:
        method = escape_markdown(row.text)
        entries = [marked(method, table.row_marks.get(row.key, ()))]
        for column in table.columns:
            cell = table.cell(row, column)
            place = places[column.key].get(row.key)
            mean = result_table.mean_text(cell, column)
            mean = f"**{mean}**" if place == 1 else f"<u>{mean}</u>" if place == 2 else mean
            measured = f"{mean} {result_table.spread_text(cell, column, table)}".strip()
            paper = ", ".join(filter(None, result_table.paper_text(cell, column)))
            text = marked(measured, cell.remarks)
            entries.append(f"{text} ({paper})" if paper else text)
        entries += [result_table.megabytes_text(table, row)] * table.has_megabytes
        lines.append(_pipe(entries))
    if table.has_paper:
        entries = ["Spearman", *(result_table.agreement_text(table, c) for c in table.columns)]
        lines.append(_pipe(entries + [""] * table.has_megabytes))
    lines += ["", *map(escape_markdown, result_table.legend(table, "In brackets"))]
    if notes.texts:
        lines += ["", *(f"{i}. {escape_markdown(t)}" for i, t in enumerate(notes.texts, 1))]
    if table.scaled:
        lines += ["", "Smaller than in the paper:", "", *_bullets(table.scaled)]
    if table.footnotes:
        lines += ["", "Known about these numbers:", "", *_bullets(table.footnotes)]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Returns CSV with one line per cell, unrounded numbers, and lists separated by semicolons.

    The table's footnotes are only in the first line, so that they are not repeated for every cell.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    footnotes = " ".join(table.footnotes)
    for column in table.columns:
        places = result_table.places(table, column)
        spearman, methods = result_table.agreement(table, column)
        for row in table.rows:
            cell = table.cell(row, column)
            numbers = [cell.paper, cell.paper_std, cell.gap, places.get(row.key), spearman, methods]
            writer.writerow(
                [
                    table.title,
                    row.key,
                    column.key,
                    table.reported,
                    len(cell.values),
                    *map(_number, (cell.mean, cell.std)),
                    ";".join(map(_number, cell.values)),
                    table.paper_reported,
                    *map(_number, numbers),
                    ";".join(map(_number, cell.megabytes)),
                    cell.failure,
                    "; ".join((*table.row_marks.get(row.key, ()), *cell.notes)),
                    "; ".join(table.scaled),
                    footnotes,
                ]
            )
            footnotes = ""
    return buffer.getvalue()


def to_latex(table: Table) -> str:
    r"""Returns a LaTeX ``table`` environment, which only requires the package ``booktabs``.

    Every method has two lines, the measured numbers and those of the paper with the gap, so that
    tables are as narrow as those of the papers. The label for ``\ref`` is derived from the title.
    """
    notes = _Notes()

    def marked(text: str, remarks: tuple[str, ...]) -> str:
        numbers = notes.numbers(remarks)
        return f"{text}$^{{{numbers}}}$" if numbers else text

    label = "tab:" + re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-")
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escape_latex(f'{table.title}. {table.caption}')}}}",
        rf"\label{{{label}}}",
        r"\small",
        rf"\begin{{tabular}}{{l{'c' * len(table.columns)}{'r' * table.has_megabytes}}}",
        r"\toprule",
        *_latex_head(table),
        r"\midrule",
    ]
    places = {column.key: result_table.places(table, column) for column in table.columns}
    for row in table.rows:
        method = escape_latex(row.text)
        ours = [marked(method, table.row_marks.get(row.key, ()))]
        papers = [r"\quad\footnotesize paper (gap)"]
        for column in table.columns:
            cell = table.cell(row, column)
            place = places[column.key].get(row.key)
            mean = _latex_number(result_table.mean_text(cell, column))
            mean = rf"\textbf{{{mean}}}" if place == 1 else mean
            mean = rf"\underline{{{mean}}}" if place == 2 else mean
            spread = escape_latex(result_table.spread_text(cell, column, table))
            ours.append(marked(f"{mean} {spread}".strip(), cell.remarks))
            printed, gap = result_table.paper_text(cell, column)
            gap = f" ({_latex_number(gap)})" if gap else ""
            papers.append(rf"\footnotesize {printed}{gap}" if printed else "")
        ours += [result_table.megabytes_text(table, row)] * table.has_megabytes
        lines.append(_ampersand(ours))
        if any(papers[1:]):
            lines.append(_ampersand(papers))
    if table.has_paper:
        entries = [_latex_number(result_table.agreement_text(table, c)) for c in table.columns]
        lines += [r"\midrule", _ampersand(["Spearman", *entries])]
    below = [escape_latex(sentence) for sentence in result_table.legend(table, "Second lines")]
    below += [rf"$^{{{i}}}$ {escape_latex(t)}" for i, t in enumerate(notes.texts, 1)]
    below += [escape_latex(f"Smaller than in the paper: {text}") for text in table.scaled]
    below += [escape_latex(text) for text in table.footnotes]
    lines += [r"\bottomrule", r"\end{tabular}", r"\par\smallskip"]
    lines += [r"\begin{minipage}{\linewidth}\footnotesize", " \\\\\n".join(below)]
    lines += [r"\end{minipage}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _bullets(texts: tuple[str, ...]) -> list[str]:
    return [f"- {escape_markdown(text)}" for text in texts]


def _pipe(entries: list[str]) -> str:
    return f"| {' | '.join(entries)} |"


def _ampersand(entries: list[str]) -> str:
    return " & ".join(entries) + r" \\"


def _number(value: float | None) -> str:
    return "" if value is None else format(value, ".10g")


def _latex_number(text: str) -> str:
    """Replaces a minus sign by one in math mode, except for the double hyphen of empty cells."""
    return re.sub(r"(?<!-)-(?=\d)", "$-$", text)


def _latex_head(table: Table) -> list[str]:
    """Returns a line of column names, below a line of groups if there are any."""
    lines = []
    if any(column.group for column in table.columns):
        groups, rules, start = [""], [], 2
        for name, members in itertools.groupby(table.columns, key=lambda column: column.group):
            width = len(list(members))
            groups.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(name)}}}")
            if name:
                rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
            start += width
        lines += [_ampersand(groups), " ".join(rules)]
    heads = [*(c.text for c in table.columns), *[result_table.MEGABYTES] * table.has_megabytes]
    lines.append(_ampersand(["Method", *map(escape_latex, heads)]))
    return lines
