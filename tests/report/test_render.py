"""Rendered tables say what they must, in markdown, CSV and LaTeX."""

import csv
import dataclasses
import io
import re

import pytest

from experiments import printed
from fedjax_skew.report import render, result_table
from fedjax_skew.report.result_table import Cell, Header, Table
from tests.experiments.test_collect import measured_table


@pytest.fixture
def table():
    rows = (Header("fedavg", label="FedAvg"), Header("fed_x", label="Fed_X|2"), Header("fedlc"))
    columns = (Header("c1", "MNIST", "beta=0.1"), Header("c2", "CIFAR-10", "50 %"))
    cells = {
        ("fedavg", "c1"): Cell((90.0, 91.0, 92.0), paper=91.5, paper_std=0.2),
        ("fed_x", "c1"): Cell((95.0, 96.0, 97.0), paper=90.0),
        ("fedlc", "c1"): Cell((80.0, 82.0), failure="seed 2 ran out of memory", paper=92.0),
        ("fedavg", "c2"): Cell(failure="loss became NaN\nin round 3"),
        ("fed_x", "c2"): Cell((50.0,), notes=("Half the clients only.",)),
    }
    return Table(
        "My table",
        rows,
        columns,
        cells,
        caption="A & B.",
        reported="best",
        paper_reported="mean_last_50",
        row_marks={"fed_x": ("Uses data on the server.",)},
        scaled=("10 rounds instead of 50.",),
        footnotes=("The paper's sum is off by 5 %.",),
    )


def test_markdown_is_exactly_this(table):
    assert (
        render.to_markdown(table)
        == """### My table

A & B.

| Method | MNIST beta=0.1 | CIFAR-10 50 % |
| :-- | --: | --: |
| FedAvg | <u>91.00</u> ± 1.00 (91.50, -0.50) | failed [1] |
| Fed\\_X\\|2 [2] | **96.00** ± 1.00 (90.00, +6.00) | 50.00 n=1 [3] |
| fedlc | 81.00 ± 1.41 n=2 [4] (92.00, -11.00) | -- |
| Spearman | -1.00 (n=3) | -- |

Measured: best test accuracy over all rounds (the round is chosen on the test set).
Over 3 seeds; mean ± standard deviation (divisor n - 1); cells with fewer say n.
Paper: mean over the last 50 rounds.
In brackets: the paper's number and measured minus paper.
Spearman: agreement of the order of the n methods with the paper's.
Bold: best measured mean of a column; underlined: second best.

1. Failed: loss became NaN in round 3
2. Uses data on the server.
3. Half the clients only.
4. Failed: seed 2 ran out of memory

Smaller than in the paper:

- 10 rounds instead of 50.

Known about these numbers:

- The paper's sum is off by 5 %.
"""
    )


def test_megabytes_are_the_last_column_where_they_were_counted(table):
    cells = dict(table.cells)
    for (row, column), megabytes in {
        ("fedavg", "c1"): (1.5, 2.5),
        ("fed_x", "c1"): (3.0,),
        ("fed_x", "c2"): (12_000.0,),
    }.items():
        cells[row, column] = dataclasses.replace(cells[row, column], megabytes=megabytes)
    counted = dataclasses.replace(table, cells=cells)
    lines = render.to_markdown(counted).splitlines()
    assert lines[4].endswith("| CIFAR-10 50 % | Megabytes |")
    assert [line.split("|")[-2].strip() for line in lines[6:10]] == [
        "2.00",
        "3.00 to 12,000",
        "",
        "",
    ]
    assert "Megabytes: sent per run and seed between server and clients." in lines
    found = list(csv.DictReader(io.StringIO(render.to_csv(counted))))
    assert found[0]["megabytes"] == "1.5;2.5" and found[2]["megabytes"] == ""
    latex = render.to_latex(counted)
    assert r"\begin{tabular}{lccr}" in latex and r"& Megabytes \\" in latex
    assert r"& 3.00 to 12,000 \\" in latex


def test_csv_has_one_line_per_cell_with_unrounded_numbers(table):
    lines = list(csv.DictReader(io.StringIO(render.to_csv(table))))
    assert len(lines) == 6
    cells = {(line["row"], line["column"]): line for line in lines}
    first = cells["fedavg", "c1"]
    assert (first["mean"], first["std"], first["values"]) == ("91", "1", "90;91;92")
    assert (first["paper"], first["paper_std"], first["gap"]) == ("91.5", "0.2", "-0.5")
    assert (first["reported"], first["paper_reported"]) == ("best", "mean_last_50")
    assert (first["place"], cells["fed_x", "c1"]["place"]) == ("2", "1")
    assert first["spearman_methods"] == "3"
    assert cells["fedavg", "c2"]["failure"] == "loss became NaN\nin round 3"
    assert cells["fed_x", "c2"]["notes"] == "Uses data on the server.; Half the clients only."
    assert cells["fedlc", "c2"]["seeds"] == "0"
    assert all(line["scaled"] == "10 rounds instead of 50." for line in lines)
    assert [bool(line["footnotes"]) for line in lines] == [True] + [False] * 5


def latex_rows(text):
    body = text.split("\\toprule")[1].split("\\bottomrule")[0]
    return [line for line in body.splitlines() if line.endswith(r"\\")]


def test_latex_marks_best_and_second_and_escapes_text(table):
    text = render.to_latex(table)
    assert r"\textbf{96.00} $\pm$ 1.00" in text
    assert r"\underline{91.00} $\pm$ 1.00" in text
    assert r"Fed\_X\textbar{}2$^{2}$" in text
    assert r"\footnotesize 91.50 ($-$0.50)" in text
    assert r"\caption{My table. A \& B.}" in text
    assert r"\label{tab:my-table}" in text
    assert r"off by 5 \%." in text


@pytest.mark.parametrize("name", printed.table_names())
def test_latex_of_every_paper_table_is_well_formed(name):
    table = measured_table(name, lambda row: (row.value, row.value + 1))
    text = render.to_latex(table)
    width = len(table.columns)
    assert rf"\begin{{tabular}}{{l{'c' * width}}}" in text
    for line in latex_rows(text):
        spanned = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
        assert len(re.findall(r"(?<!\\)&", line)) + sum(spanned) == width
    plain = re.sub(r"\\[{}]", "", text)
    depth = 0
    for char in plain:
        depth += (char == "{") - (char == "}")
        assert depth >= 0
    assert depth == 0
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    assert not re.search(r"(?<!\\)[%#]", text)
    environments = re.findall(r"\\(begin|end)\{(\w+)\}", text)
    assert [e for kind, e in environments if kind == "begin"] == ["table", "tabular", "minipage"]
    assert [e for kind, e in environments if kind == "end"] == ["tabular", "minipage", "table"]


@pytest.mark.parametrize("name", printed.table_names())
def test_measuring_the_papers_own_numbers_agrees_fully(name):
    table = measured_table(name, lambda row: (row.value,))
    for column in table.columns:
        spearman, methods = result_table.agreement(table, column)
        assert methods == len(table.rows)
        assert spearman == pytest.approx(1)
    text = render.to_markdown(table)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == len(table.rows) + 3
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(table.columns) + 2}
    assert "Over 1 seed." in text and "±" not in "".join(rows)


def test_table_without_a_paper_says_nothing_of_one():
    table = Table("T", (Header("a"), Header("b")), (Header("c"),), {("a", "c"): Cell((1.0, 2.0))})
    for text in (render.to_markdown(table), render.to_latex(table)):
        assert "paper" not in text.lower() and "spearman" not in text.lower()


@pytest.mark.parametrize(
    "text, markdown, latex",
    [
        ("a_b*c", r"a\_b\*c", r"a\_b*c"),
        ("50 % of $x^2$ & y", r"50 % of \$x^2\$ & y", r"50 \% of \$x\textasciicircum{}2\$ \& y"),
        ("{~\\}", r"{\~\\}", r"\{\textasciitilde{}\textbackslash{}\}"),
        ("two\nlines |", r"two lines \|", r"two lines \textbar{}"),
        ("<b>#1", r"\<b\>\#1", r"\textless{}b\textgreater{}\#1"),
    ],
)
def test_special_characters_are_escaped(text, markdown, latex):
    assert render.escape_markdown(text) == markdown
    assert render.escape_latex(text) == latex


def test_tiny_negative_gap_is_not_a_negative_zero():
    table = Table("T", (Header("a"),), (Header("c"),), {("a", "c"): Cell((1.0,), paper=1.0001)})
    assert "(1.00, +0.00)" in render.to_markdown(table)
